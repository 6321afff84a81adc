"""Maps the losses of heads over devices if the batch is split along Explicit mesh axes."""

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
_OF_EXAMPLES = ("features", "labels", "where", "key")


def split_examples(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorates a loss of features [..., d] and heads: each device calls it for its examples.

    The type of the features shows how the batch is split along Explicit mesh axes. A loss that
    couples the examples has an argument `axis_name`. Each device has the complete heads.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        given = signature.bind(*args, **kwargs).arguments
        for name, value in given.items():
            if isinstance(value, LinearHead | CosineHead):
                _check_not_split(f"{name}.weights", value.weights)
        *batch, last = _spec_of(given["features"])
        if last is not None:
            raise ValueError(
                "features must be whole on each device along their last axis, got features that "
                f"are split along {last!r}."
            )
        spec = PartitionSpec(*batch)
        if not _sharding.mesh_axes(spec):
            return function(*args, **kwargs)
        couples = "axis_name" in signature.parameters
        result: Result = _call_on_devices(function, given, spec, couples)
        return result

    return called


def _spec_of(array: Any) -> tuple[Any, ...]:
    """How the axes of an array are split along Explicit mesh axes."""
    if not isinstance(array, jax.Array) or not _sharding.may_be_split(array):
        return (None,) * max(np.ndim(array), 1)
    return (*jax.typeof(array).sharding.spec,)


def _check_not_split(name: str, weights: Any) -> None:
    names = _sharding.mesh_axes(PartitionSpec(*_spec_of(weights)))
    if names:
        raise ValueError(
            f"{name} must be whole on each device, got weights that are split along "
            f"{', '.join(map(repr, names))}: use heads.scores and the loss of topk_jax.losses."
        )


def _call_on_devices(
    function: Callable[..., Any], given: dict[str, Any], spec: PartitionSpec, couples: bool
) -> Any:
    shape = given["features"].shape
    of = ("features", shape)
    given = {**given, "labels": _checks.integer_array(given["labels"], "labels", shape[:-1], of=of)}
    if "key" in given:
        # The noise of a key depends on the position in the batch, which a device does not know.
        given["key"] = derive_keys(given["key"], shape[:-1])
    if couples:
        given["axis_name"] = _sharding.mesh_axes(spec)
    arguments = jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, given
    )
    specs = dict.fromkeys(_OF_EXAMPLES, spec)
    spec_of_results = PartitionSpec() if couples else spec
    return _sharding.call_on_devices(function, arguments, specs, spec_of_results)
