"""Decorators of functions of scores: check `class_axis_name`, infer it, or refuse split classes."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Literal, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from topk_jax import _checks, _sharding
from topk_jax._example import check_classes

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# Arguments that are split like the first one, like its batch, or by classes.
_LIKE_FIRST = ("proposal_logits", "targets", "plausibilities")
_OF_BATCH = ("key", "labels", "thresholds", "uniform", "where")
_OF_CLASSES = ("margins", "class_counts", "threshold")


def allow_split(
    *,
    of: Literal["examples", "entries", "batch"] = "examples",
    derive_keys: Callable[[Any, tuple[int, ...]], Any] | None = None,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Decorates a function of scores [..., L] that has an argument `class_axis_name`.

    If the name is `None` and the classes are split along Explicit mesh axes, each device calls the
    function for its classes. Inside `jax.shard_map`, a call without the name raises if the types
    show that the classes are split.

    Args:
        of: what each number of the result belongs to: an example, an entry (an example and a
            class), or the batch. A function of the batch that has no argument `axis_name` gets all
            examples.
        derive_keys: makes one key per example from one key.
    """

    def decorated(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        signature = inspect.signature(function)
        first = next(iter(signature.parameters))

        @wraps(function)
        def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            name = kwargs.get("class_axis_name")
            scores: Any = args[0] if args else kwargs.get(first)
            if name is None and (
                not isinstance(scores, jax.Array) or jax.typeof(scores).sharding.mesh.empty
            ):
                return function(*args, **kwargs)
            given = signature.bind(*args, **kwargs).arguments
            check_classes(first, given[first], given.get("labels"), name)
            if name is not None:
                return function(*args, **kwargs)
            spec = _explicit_spec(scores)
            if not spec or spec[-1] is None:
                return function(*args, **kwargs)
            takes_axis_name = "axis_name" in signature.parameters
            result: Result = _call_on_devices(
                function, first, given, spec, of, takes_axis_name, derive_keys
            )
            return result

        return called

    return decorated


def refuse_split(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorates a function of scores [..., L] that needs all classes of an example.

    Inside `jax.shard_map`, a call raises if the types show that the classes are split.
    """
    signature = inspect.signature(function)
    first = next(iter(signature.parameters))

    @wraps(function)
    def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        scores = args[0] if args else kwargs.get(first)
        if isinstance(scores, jax.Array) and not jax.typeof(scores).sharding.mesh.empty:
            given = signature.bind(*args, **kwargs).arguments
            check_classes(first, scores, given.get("labels"), None, way="gather its classes")
        return function(*args, **kwargs)

    return called


def _explicit_spec(scores: jax.Array) -> tuple[Any, ...]:
    """How the axes of an array are split along Explicit mesh axes."""
    return (*jax.typeof(scores).sharding.spec,)


def _call_on_devices(
    function: Callable[..., Any],
    first: str,
    given: dict[str, Any],
    spec: tuple[Any, ...],
    of: str,
    takes_axis_name: bool,
    derive_keys: Callable[[Any, tuple[int, ...]], Any] | None,
) -> Any:
    """Calls the function on each device, for its classes and examples."""
    scores = given[first]
    batch_shape = scores.shape[:-1]
    # A statistic needs all examples.
    needs_all = of == "batch" and not takes_axis_name
    batch = (None,) * len(batch_shape) if needs_all else spec[:-1]
    classes = spec[-1]
    if "labels" in given:
        given = {**given, "labels": _checks.integer_array(given["labels"], "labels", batch_shape)}
    if given.get("key") is not None and derive_keys is not None:
        # The noise of a key depends on the position in the batch, which a device does not know.
        given = {**given, "key": derive_keys(given["key"], batch_shape)}
    specs = {}
    for name, value in given.items():
        if name == first or name in _LIKE_FIRST:
            spec = (*batch, classes)
        elif name in _OF_BATCH and value is not None and np.ndim(value) == len(batch_shape):
            spec = batch
        # Each device has all of the noise of a quantile of the batch.
        elif name == "noise" and np.ndim(value) > len(batch_shape) + 1:
            spec = (None, *batch, classes)
        elif name in _OF_CLASSES and np.ndim(value) == 1:
            spec = (classes,)
        else:
            continue
        specs[name] = PartitionSpec(*spec)
        # Counts of classes may be larger than an integer of 32 bits.
        convert = partial(_checks.real_numbers, name=name) if name in _OF_CLASSES else jnp.asarray
        given = {**given, name: convert(value)}
    results = {
        "examples": PartitionSpec(*batch),
        "entries": PartitionSpec(*batch, classes),
        "batch": PartitionSpec(),
    }
    if takes_axis_name and any(batch):
        given = {**given, "axis_name": _sharding.mesh_axes(PartitionSpec(*batch))}
    call = partial(function, class_axis_name=classes)
    return _sharding.call_on_devices(call, given, specs, results[of])
