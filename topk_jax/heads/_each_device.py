"""Maps functions of heads over devices if the batch is split along Explicit mesh axes."""

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
    """Decorates a function of features [..., d] and heads: each device calls it for its examples.

    The type of the features shows how the batch is split along Explicit mesh axes. A loss that
    couples the examples has an argument `axis_name`. Each device has the complete heads, except
    that a function with an argument `class_axis_name` takes a head that is split by classes.
    """
    signature = inspect.signature(function)
    takes_classes = "class_axis_name" in signature.parameters

    @wraps(function)
    def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        given = signature.bind(*args, **kwargs).arguments
        classes = None
        for name, value in given.items():
            if isinstance(value, LinearHead | CosineHead):
                classes = _split_of_classes(name, value.weights, takes_classes)
        *batch, last = _spec_of(given["features"])
        if last is not None:
            raise ValueError(
                "features must not be split along their last axis, got features that are split "
                f"along {last!r}."
            )
        spec = PartitionSpec(*batch)
        of_classes = {*_sharding.mesh_axes(PartitionSpec(classes))}
        if shared := of_classes.intersection(_sharding.mesh_axes(spec)):
            raise ValueError(
                "features must not be split along the axes that the classes are split along, "
                f"got features that are split along {', '.join(map(repr, shared))}."
            )
        if not of_classes and not _sharding.mesh_axes(spec):
            return function(*args, **kwargs)
        couples = "axis_name" in signature.parameters
        result: Result = _call_on_devices(function, given, spec, classes, couples)
        return result

    return called


def _spec_of(array: Any) -> tuple[Any, ...]:
    """How the axes of an array are split along Explicit mesh axes."""
    if not isinstance(array, jax.Array) or not _sharding.may_be_split(array):
        # A head, if the arguments change places, is refused by the function itself.
        return (None,)
    return (*jax.typeof(array).sharding.spec,)


def _split_of_classes(name: str, weights: Any, takes_classes: bool) -> Any:
    """How the classes of a head are split along Explicit mesh axes; raises for other splits."""
    *others, classes = _spec_of(weights)
    found = PartitionSpec(*others) if takes_classes else PartitionSpec(*others, classes)
    if names := ", ".join(map(repr, _sharding.mesh_axes(found))):
        where, way = (
            ("along their first axis", "")
            if takes_classes
            else ("over devices", ": use heads.scores and the loss of topk_jax.losses")
        )
        raise ValueError(
            f"{name}.weights must not be split {where}, got weights that are split along "
            f"{names}{way}."
        )
    return classes


def _call_on_devices(
    function: Callable[..., Any],
    given: dict[str, Any],
    spec: PartitionSpec,
    classes: Any,
    couples: bool,
) -> Any:
    shape = np.shape(given["features"])
    if "labels" in given:
        of = ("features", shape)
        given["labels"] = _checks.integer_array(given["labels"], "labels", shape[:-1], of=of)
    if given.get("where") is not None:
        given["where"] = _checks.boolean_array(given["where"], "where", shape[:-1])
    if "key" in given:
        # The noise of a key depends on the position in the batch, which a device does not know.
        given["key"] = derive_keys(given["key"], shape[:-1])
    if couples:
        given["axis_name"] = _sharding.mesh_axes(spec)
    if classes is not None:
        given["class_axis_name"] = classes
    arguments = jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, given
    )
    specs = dict.fromkeys(_OF_EXAMPLES, spec)
    specs["head.weights"], specs["head.bias"] = PartitionSpec(None, classes), PartitionSpec(classes)
    spec_of_results = PartitionSpec() if couples else spec
    return _sharding.call_on_devices(function, arguments, specs, spec_of_results)
