"""Losses of heads by each device, where the batch is split along Explicit mesh axes."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from topk_jax import _checks, _sharding
from topk_jax.heads._head import CosineHead, LinearHead
from topk_jax.operators._perturbed import derive_keys

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# Arguments with the examples along their first axes.
_OF_EXAMPLES = ("features", "labels", "key")


def for_own_examples(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """For a loss of features [..., d] and heads: each device calls it for its own examples.

    The type of the features tells how the batch is split along Explicit mesh axes. A loss that
    couples the examples has an argument `axis_name`. The heads are whole on each device.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        given = signature.bind(*args, **kwargs).arguments
        for name, value in given.items():
            if isinstance(value, LinearHead | CosineHead):
                _refuse_split(f"{name}.weights", value.weights)
        features = given["features"]
        split = _split(features)[:-1]
        if _split(features)[-1] is not None:
            raise ValueError(
                "features must be whole on each device along their last axis, got features that "
                f"are split along {_split(features)[-1]!r}."
            )
        names = _sharding.mesh_axes(PartitionSpec(*split))
        if not names:
            return function(*args, **kwargs)
        couples = "axis_name" in signature.parameters
        result: Result = _call_on_devices(function, given, split, names, couples)
        return result

    return called


def _split(array: Any) -> tuple[Any, ...]:
    """How the axes of an array are split along Explicit mesh axes."""
    if not isinstance(array, jax.Array) or not _sharding.may_be_split(array):
        return (None,) * max(np.ndim(array), 1)
    return (*jax.typeof(array).sharding.spec,)


def _refuse_split(name: str, weights: Any) -> None:
    names = _sharding.mesh_axes(PartitionSpec(*_split(weights)))
    if names:
        raise ValueError(
            f"{name} must be whole on each device, got weights that are split along "
            f"{', '.join(map(repr, names))}: use heads.scores and the loss of topk_jax.losses."
        )


def _call_on_devices(
    function: Callable[..., Any],
    given: dict[str, Any],
    split: tuple[Any, ...],
    names: tuple[Any, ...],
    couples: bool,
) -> Any:
    batch_shape = given["features"].shape[:-1]
    labels = _checks.integer_array(
        given["labels"], "labels", batch_shape, of=("features", given["features"].shape)
    )
    given = {**given, "labels": labels}
    if "key" in given:
        # The noise of a key depends on the place in the batch, which a device does not know.
        given["key"] = derive_keys(given["key"], batch_shape)
    if couples:
        given["axis_name"] = names
    arguments = jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, given
    )
    spec = PartitionSpec(*split)
    specs = {name: spec for name in _OF_EXAMPLES if name in arguments}
    return _sharding.call_on_devices(
        function, arguments, specs, PartitionSpec() if couples else spec
    )
