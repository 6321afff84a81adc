"""Argument checks at trace time: first of static arguments, then of arrays, then of their numbers.

Every check returns the converted argument, or raises a `ValueError` or `TypeError` of one line with
the argument's name, its value and the allowed values. A traced value that is wrong becomes NaN.
"""

import numbers as kinds_of_numbers
import operator
from collections.abc import Callable, Hashable, Set
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _classes
from topk_jax._classes import nan_unless

_REAL = (jnp.bool_, jnp.floating, jnp.integer)


def describe(given: Any) -> str:
    """A short description of the user's argument on one line; of an array, its shape."""
    if isinstance(given, jax.Array | np.ndarray):
        return f"an array of shape {given.shape}"
    words = repr(given)
    kind = f"type {type(given).__name__}"
    return f"{words} of {kind}" if len(words) <= 60 and "\n" not in words else f"one of {kind}"


def _refuse_traced(given: Any, name: str, kind: str) -> None:
    if isinstance(given, jax.core.Tracer):
        raise TypeError(
            f"{name} must be a static {kind}, got a traced value: mark it static under jit."
        )


def static_integer(
    number: Any, name: str, *, minimum: int, maximum: int | None = None, reason: str = ""
) -> int:
    """Returns a static integer, or raises; `reason` says in the message why it has a maximum."""
    _refuse_traced(number, name, "integer")
    try:
        value = operator.index(number)
    except TypeError as error:
        raise TypeError(f"{name} must be an integer, got {describe(number)}.") from error
    if isinstance(number, bool | np.bool_):
        raise TypeError(f"{name} must be an integer, got {number}.")
    if value < minimum or (maximum is not None and value > maximum):
        allowed = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        suffix = f" ({reason})" if reason else ""
        raise ValueError(f"{name} must be {allowed}{suffix}, got {value}.")
    return value


def rank(k: Any, maximum: int, *, reason: str = "the number of classes") -> int:
    """Returns the static rank or set size `k`, or raises if it is outside [1, maximum]."""
    return static_integer(k, "k", minimum=1, maximum=maximum, reason=reason)


def rank_or_sum(k: Any, maximum: int, dtype: jnp.dtype) -> int | jax.Array:
    """Returns `k` as a static integer from 1, or as a real scalar above 0; at most `maximum`."""
    if isinstance(k, int | np.integer) and not isinstance(k, bool):
        return rank(k, maximum)
    return scalar(k, "k", dtype, above=0, at_most=maximum)


def set_sizes(sizes: Any, name: str, num_classes: int) -> tuple[int, ...]:
    """Returns static set sizes from 1 to the number of classes, or raises for others or none."""
    try:
        given = tuple(sizes)
    except TypeError as error:
        raise TypeError(f"{name} must be a sequence of integers, got {sizes!r}.") from error
    if not given:
        raise ValueError(f"{name} must have at least one set size, got {sizes!r}.")
    return tuple(
        static_integer(size, name, minimum=1, maximum=num_classes, reason="the number of classes")
        for size in given
    )


def axis_index(axis: Any, ndim: int) -> int:
    """Returns `axis` counted from the front, or raises if the array does not have it."""
    return static_integer(axis, "axis", minimum=-ndim, maximum=ndim - 1) % ndim


def static_number(number: Any, name: str, reason: str = "", **bounds: Any) -> Fraction:
    """Returns the exact fraction of a static number's shortest decimal, or raises: `numbers`.

    The float 1.15 is a little less than the decimal: 100 sets of that mean size could lose a class.
    """
    _refuse_traced(number, name, "number")
    if isinstance(number, bool | np.bool_) or not isinstance(number, kinds_of_numbers.Real):
        raise TypeError(f"{name} must be a real number, got {describe(number)}.")
    if not np.isfinite(float(number)):
        raise ValueError(f"{name} must be a finite number, got {number}.")
    exact = Fraction(str(number))
    if not _are_inside(exact, bounds):
        raise ValueError(f"{name} must be {_words(bounds)}{reason}, got {number}.")
    return exact


def mean_set_size(k: Any, num_classes: int | None = None) -> Fraction:
    """Returns a static mean set size from 1 to L, or raises."""
    if num_classes is None:
        return static_number(k, "k", at_least=1)
    return static_number(k, "k", " (the number of classes)", at_least=1, at_most=num_classes)


def static_error(error: Any, *, below: Fraction = Fraction(1)) -> Fraction:
    """Returns a static error in [0, `below`), or raises."""
    return static_number(error, "error", at_least=0, below=below)


def static_boolean(given: Any, name: str) -> bool:
    """Returns a static boolean, or raises for anything else."""
    _refuse_traced(given, name, "boolean")
    if not isinstance(given, bool | np.bool_):
        raise TypeError(f"{name} must be a boolean, got {describe(given)}.")
    return bool(given)


def choice(given: Any, name: str, allowed: tuple[str, ...]) -> str:
    """Returns a static string, or raises if it is not one of those that are allowed."""
    _refuse_traced(given, name, "string")
    if not isinstance(given, str) or given not in allowed:
        listed = ", ".join(map(repr, allowed[:-1])) + f" or {allowed[-1]!r}"
        got = repr(given) if isinstance(given, str) else describe(given)
        raise ValueError(f"{name} must be {listed}, got {got}.")
    return given


def parameters_of_kind(
    kind: str, parameters: dict[str, Any], *, needed: Set[str], possible: Set[str] = frozenset()
) -> dict[str, Any]:
    """Returns the parameters that are not `None`, or raises if the kind does not have them.

    `needed` are the names of those that the kind needs, `possible` of others that it may have.
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    for name in sorted(needed - given.keys()):
        raise ValueError(f"{name} must be given for kind {kind!r}, got None.")
    for name in sorted(given.keys() - needed - possible):
        raise ValueError(f"{name} must be None for kind {kind!r}, got {describe(given[name])}.")
    return given


def axis_size(axis_name: Hashable | None, name: str = "axis_name") -> int:
    """Returns the number of devices along a mapped axis, 1 for `None`; raises for other names."""
    if axis_name is None:
        return 1
    try:
        # JAX takes a list here, and refuses it later.
        hash(axis_name)
        return jax.lax.axis_size(axis_name)
    except (NameError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be None or the name of an axis that pmap, shard_map or vmap binds around "
            f"this call, got {axis_name!r}."
        ) from error


def known_values(given: Any) -> np.ndarray | None:
    """The values of the user's argument, or `None` if they are traced.

    Do not pass a converted argument: under jit, conversion turns a constant into a traced value.
    """
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(given)):
        return None
    return np.asarray(given)


def concrete(given: Any, name: str) -> np.ndarray:
    """Returns the array on the host, or raises if it is traced."""
    known = known_values(given)
    if known is None:
        raise TypeError(f"{name} must be a concrete array, got a traced value: not inside jit.")
    return known


def as_array(array: Any, name: str, expected: str, kinds: tuple[Any, ...], hint: str = "") -> Any:
    """Returns what the user gave as an array of JAX, or raises if it is not an array of a kind.

    Without 64-bit mode JAX wraps integers around, and a label of 2^32 would become 0: here it
    becomes the closest bound, which is out of range too.
    """
    article = "an" if expected[0] in "aeiou" else "a"
    try:
        concrete = None if isinstance(array, jax.Array) else known_values(array)
        if concrete is not None and concrete.dtype.kind in "iu":
            fitting = jax.dtypes.canonicalize_dtype(concrete.dtype)
            limits = np.iinfo(fitting)
            array = concrete.clip(limits.min, limits.max).astype(fitting)
        converted = jnp.asarray(array)
    except (TypeError, ValueError, OverflowError) as error:
        got = type(array).__name__
        raise TypeError(f"{name} must be {article} {expected}, got {got}.") from error
    if not any(jnp.issubdtype(converted.dtype, kind) for kind in kinds):
        got = f"dtype {converted.dtype}{hint}"
        raise TypeError(f"{name} must be {article} {expected}, got {got}.")
    return converted


def _check_shape(
    array: jax.Array, name: str, *shapes: tuple[int, ...], of: str = "", hint: str = ""
) -> None:
    if array.shape not in shapes:
        must = " or ".join(f"have shape {shape}" if shape else "be a scalar" for shape in shapes)
        raise ValueError(f"{name} must {must}{of}, got shape {array.shape}{hint}.")


def _check_vector(array: jax.Array, name: str) -> None:
    if array.ndim != 1 or array.shape[0] == 0:
        raise ValueError(f"{name} must be a vector of numbers, got shape {array.shape}.")


def floating_numbers(array: ArrayLike, name: str) -> jax.Array:
    """Returns a scalar or an array in float32 or float64, or raises if its dtype is wrong."""
    converted = as_array(array, name, "floating-point array", (jnp.floating,))
    # Not `promote_types`: under strict promotion it refuses half precision.
    return converted.astype(jnp.float32) if converted.dtype.itemsize < 4 else converted


def floating_array(array: ArrayLike, name: str, axis: int = -1) -> jax.Array:
    """Returns `array` in float32 or float64, or raises if it is empty along the axis."""
    converted = floating_numbers(array, name)
    if converted.ndim == 0 or converted.shape[axis_index(axis, converted.ndim)] == 0:
        along = "the last" if axis == -1 else f"axis {axis}"
        raise ValueError(
            f"{name} must have at least one axis and not be empty along {along}, "
            f"got shape {converted.shape}."
        )
    return converted


def integer_array(
    array: ArrayLike,
    name: str,
    shape: tuple[int, ...] | None = None,
    *,
    of: tuple[str, tuple[int, ...]] | None = None,
    hint: str = "",
) -> jax.Array:
    """Returns `array` with at least 32 bits, or raises if it is not an integer array of this shape.

    `of` are the name and the shape of the argument that determines this shape, for the message,
    which `hint` ends.
    """
    converted = as_array(array, name, "integer array", (jnp.integer,), hint)
    if shape is not None:
        follows = "" if of is None else f" for {of[0]} of shape {of[1]}"
        _check_shape(converted, name, shape, of=follows, hint=hint)
    # Eight bits hold at most 256 classes; comparisons with larger indices would wrap around.
    return converted.astype(jnp.int32) if converted.dtype.itemsize < 4 else converted


def boolean_array(array: ArrayLike, name: str, shape: tuple[int, ...] | None = None) -> jax.Array:
    """Returns `array`, or raises if it is not a boolean array (of the given shape, if any)."""
    # Libraries whose accuracies take scores and labels are common.
    hint = "; metrics.top_k_hits makes them of scores and labels" if name == "hits" else ""
    converted: jax.Array = as_array(array, name, "boolean array", (jnp.bool_,), hint)
    if shape is not None:
        _check_shape(converted, name, shape)
    return converted


def real_numbers(values: ArrayLike, name: str) -> jax.Array:
    """Returns real numbers in the type that they have, or as floats if they are known integers."""
    concrete = None if isinstance(values, jax.Array) else known_values(values)
    if concrete is not None and concrete.dtype.kind in "iu":
        # Integers of any size are rounded to floats.
        values = concrete.astype(np.float64)
    return as_array(values, name, "real number or array", (jnp.floating, jnp.integer))


def real_array(
    values: ArrayLike, name: str, dtype: jnp.dtype, *shapes: tuple[int, ...]
) -> jax.Array:
    """Returns real numbers in `dtype`, also infinity and NaN, or raises for another shape."""
    converted = real_numbers(values, name)
    _check_shape(converted, name, *shapes)
    return converted.astype(dtype)


def booleans_or_reals(values: ArrayLike, name: str, shape: tuple[int, ...]) -> jax.Array:
    """Returns booleans or real numbers of this shape in the type that they have, or raises."""
    converted: jax.Array = as_array(values, name, "boolean or real array", _REAL)
    _check_shape(converted, name, shape)
    return converted


def counting_or_real_array(array: ArrayLike, name: str) -> jax.Array:
    """Returns booleans, integers as the default integer type, or floats in at least 32 bits."""
    converted: jax.Array = as_array(array, name, "boolean or real array", _REAL)
    if converted.dtype == jnp.bool_:
        return converted
    if jnp.issubdtype(converted.dtype, jnp.floating):
        return floating_numbers(array, name)
    found, limits = exact(array, converted), jnp.iinfo(jnp.result_type(int))
    right = (found >= limits.min) & (found <= limits.max)
    refuse(right, found, name, f"from {limits.min} to {limits.max}")
    return converted.astype(int)


def random_keys(key: Any, name: str, batch_shape: tuple[int, ...]) -> jax.Array:
    """Returns one key, or keys of the batch's shape, as typed keys; accepts legacy keys too."""
    try:
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            key = jax.random.wrap_key_data(jnp.asarray(key))
    except (AttributeError, TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be a key made by jax.random.key, got {describe(key)}."
        ) from error
    if key.shape not in ((), batch_shape):
        several = f", or an array of keys of the batch's shape {batch_shape}" if batch_shape else ""
        raise ValueError(f"{name} must be one key{several}, got shape {key.shape}.")
    return key


def some_examples(logits: jax.Array, name: str) -> None:
    """Raises for an empty batch, whose mean is undefined."""
    if logits.size == 0:
        raise ValueError(f"{name} must have at least one example, got shape {logits.shape}.")


def exact(given: Any, converted: jax.Array) -> Any:
    """The values of the user's argument, as they are given; traced ones after their conversion."""
    known = known_values(given)
    return converted if known is None else known


def refuse(right: Any, found: Any, name: str, must_be: str) -> None:
    """Raises if one of known numbers, or all of them together, are not right."""
    if isinstance(found, np.ndarray) and not right.all():
        got = f"{float(found[~right].flat[0]):.10g}" if np.ndim(right) else describe(found)
        raise ValueError(f"{name} must be {must_be}, got {got}.")


def _only(right: Any, found: Any, converted: jax.Array, name: str, must_be: str) -> jax.Array:
    """Returns the numbers, or raises if known ones are not right; traced ones become NaN."""
    refuse(right, found, name, must_be)
    return converted if isinstance(found, np.ndarray) else nan_unless(right, converted)


# What bounds of numbers are called.
_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "at_least": ("at least", operator.ge),
    "above": ("greater than", operator.gt),
    "at_most": ("at most", operator.le),
    "below": ("less than", operator.lt),
}


def _words(bounds: dict[str, Any]) -> str:
    if bounds.keys() == {"at_least", "at_most"}:
        return f"from {bounds['at_least']:g} to {bounds['at_most']:g}"
    return " and ".join(f"{_BOUNDS[name][0]} {float(bound):g}" for name, bound in bounds.items())


def _are_inside(values: Any, bounds: dict[str, Any]) -> Any:
    """Whether numbers are inside their bounds; not if they are NaN."""
    inside: Any = True
    for name, bound in bounds.items():
        inside = inside & _BOUNDS[name][1](values, bound)
    return inside


def scalar(number: ArrayLike, name: str, dtype: jnp.dtype, **bounds: Any) -> jax.Array:
    """A real scalar: see `numbers`."""
    return numbers(number, name, dtype, ((),), **bounds)


def numbers(
    given: ArrayLike,
    name: str,
    dtype: jnp.dtype,
    shapes: tuple[tuple[int, ...], ...] | None,
    class_axis_name: Hashable | None = None,
    **bounds: Any,
) -> jax.Array:
    """Returns finite real numbers in `dtype`, or raises if one is outside its bounds.

    `shapes` are those that they may have; `None` stands for any vector that is not empty. If one of
    traced numbers is outside, all are NaN: also those of other devices, if they are split along
    `class_axis_name`. A number that becomes infinite or falls to `above` in `dtype` is refused too.
    A number may rise to `below`, as 1 - 1e-9 does in float32.
    """
    # A number that overflows is refused below.
    with np.errstate(over="ignore"):
        values = real_numbers(given, name)
        result = values.astype(dtype)
    if shapes is None:
        _check_vector(values, name)
    else:
        hint = "; jax.vmap takes one of each example" if shapes == ((),) else ""
        _check_shape(values, name, *shapes, hint=hint)
    of_rounded = {words: bound for words, bound in bounds.items() if words == "above"}
    concrete = known_values(given)
    if concrete is None:
        exact = values if jnp.issubdtype(values.dtype, jnp.floating) else result
        valid = _are_inside(exact, bounds) & _are_inside(result, of_rounded) & jnp.isfinite(result)
        valid = valid.all()
        if class_axis_name is not None and values.ndim:
            valid = jax.lax.pmin(valid.astype(jnp.int8), class_axis_name) > 0
        return nan_unless(valid, result)
    with np.errstate(over="ignore"):
        rounded = concrete.astype(dtype)
    # XLA takes a denormal number for 0.
    rounded = np.where(np.abs(rounded) < jnp.finfo(dtype).tiny, 0, rounded)
    allowed = _are_inside(concrete, bounds) & np.isfinite(concrete)
    right = allowed & _are_inside(rounded, of_rounded) & np.isfinite(rounded)
    if not right.all():
        wrong = tuple(np.argwhere(~right)[0])
        must_be = f"finite and {_words(bounds)}" if bounds else "a finite number"
        is_rounded = f", which counts as {rounded[wrong]:g} in {np.dtype(dtype).name}"
        got = f"{float(concrete[wrong])!r}{is_rounded if allowed[wrong] else ''}"
        raise ValueError(f"{name} must be {must_be}, got {got}.")
    return result


def within(values: ArrayLike, converted: jax.Array, name: str, **bounds: Any) -> jax.Array:
    """Returns `converted`, or raises if a number is outside the bounds; NaN is inside."""
    found = exact(values, converted)
    is_nan = ~(abs(found) >= 0)
    right = _are_inside(found, bounds) | is_nan
    return _only(right, found, converted, name, _words(bounds))


def in_order(values: ArrayLike, name: str, dtype: jnp.dtype, *, falls: bool) -> jax.Array:
    """Returns real numbers `[m]` in `dtype` that never grow, or never fall, or raises."""
    converted = real_numbers(values, name)
    _check_vector(converted, name)
    found = exact(values, converted)
    # NaN fails the comparisons.
    steps = found[1:] <= found[:-1] if falls else found[1:] >= found[:-1]
    right = steps.all() & (abs(found) >= 0).all()
    must_be = f"numbers that never {'grow' if falls else 'fall'}"
    return _only(right, found, converted.astype(dtype), name, must_be)


def weights_of_examples(weights: ArrayLike, name: str, shape: tuple[int, ...]) -> jax.Array:
    """Returns weights of this shape in the default float type, finite and at least 0, or raises."""
    dtype = jnp.result_type(float)
    # A number that overflows is refused below.
    with np.errstate(over="ignore"):
        converted = real_array(weights, name, dtype, shape)
    found = exact(weights, converted)
    right = (found >= 0) & (found <= float(jnp.finfo(dtype).max))
    return _only(right, found, converted, name, "finite and at least 0")


def relative_weights(
    weights: ArrayLike, name: str, num_classes: int, dtype: jnp.dtype
) -> jax.Array:
    """Returns one relative weight per class, [L], at least 0 and not all 0, or raises."""
    converted = numbers(weights, name, dtype, ((), (num_classes,)), at_least=0)
    found, least = exact(weights, converted), float(jnp.finfo(dtype).tiny)
    some = (found >= least).any()
    converted = _only(some, found, converted, name, f"at least {least:g} for one class")
    return jnp.broadcast_to(converted, (num_classes,))


def training_counts(counts: ArrayLike, name: str) -> jax.Array:
    """Returns the number of training examples of each class, [L] integers; it may be 0."""
    converted = integer_array(counts, name)
    _check_vector(converted, name)
    found = exact(counts, converted)
    refuse(found >= 0, found, name, "at least 0 for each class")
    return converted


def ranks(k: Any, maximum: int, shape: tuple[int, ...]) -> jax.Array:
    """Returns set sizes of the given shape, or raises if one is not from 1 to maximum.

    In an array, 0 is allowed too, for examples without targets. The values of a traced array cannot
    be checked.
    """
    if not isinstance(k, jax.Array | np.ndarray):
        return jnp.full(shape, rank(k, maximum))
    sizes = integer_array(k, "k", shape)
    found, allowed = exact(k, sizes), f"from 0 to {maximum} (the number of classes)"
    refuse((found >= 0) & (found <= maximum), found, "k", allowed)
    return sizes


def rounding_of_sum(dtype: np.dtype) -> float:
    """How far a sum of probabilities may be from 1, because numbers of the given type are rounded.

    Shares that are rounded to bfloat16 may add up to 1.004; decimals may be rounded to four digits.
    It does not grow with the number of classes, because it would then accept anything.
    """
    eps = float(jnp.finfo(dtype).eps) if jnp.issubdtype(dtype, jnp.floating) else 0.0
    return max(1e-4, 2 * eps)


def probabilities(array: ArrayLike, name: str) -> jax.Array:
    """Returns probabilities [..., L] in float32 or float64, or raises if one is not from 0 to 1.

    Logits would give sets that look plausible. A number may exceed 1 by `rounding_of_sum`. Traced
    examples with a wrong number are NaN. NaN is allowed.
    """
    hint = "from 0 to 1", "jax.nn.softmax makes probabilities of logits"
    return _between(array, name, 0.0, 1.0, hint)


def log_probabilities(array: ArrayLike, name: str) -> jax.Array:
    """Returns logarithms of probabilities [..., L], or raises: see `probabilities`."""
    hint = "at most 0", "jax.nn.log_softmax makes log-probabilities of logits"
    return _between(array, name, -np.inf, 0.0, hint)


def _between(
    given: ArrayLike, name: str, lower: float, upper: float, hint: tuple[str, str]
) -> jax.Array:
    converted = floating_array(given, name)
    upper += rounding_of_sum(jnp.asarray(given).dtype)
    if known_values(given) is None:
        is_wrong = (converted < lower) | (converted > upper)
        return jnp.where(is_wrong.any(axis=-1, keepdims=True), jnp.nan, converted)
    # `converted` is traced if the caller is, even if the numbers are not. The cost is one pass, and
    # the wait for its result: the numbers may be on any devices.
    with jax.ensure_compile_time_eval():
        extremes = np.asarray(_extremes(jnp.asarray(given)))
    wrong = extremes[(extremes < lower) | (extremes > upper)]
    if wrong.size:
        raise ValueError(f"{name} must be {hint[0]}, got {wrong[-1]:g}; {hint[1]}.")
    return converted


@jax.jit
def _extremes(numbers: jax.Array) -> jax.Array:
    """The smallest and the largest number that is not NaN; 0 and 0 if there is none."""
    counted = jnp.where(jnp.isnan(numbers), 0, numbers)
    return jnp.stack([counted.min(initial=0), counted.max(initial=0)])


def distributions(
    values: ArrayLike,
    name: str,
    shape: tuple[int, ...],
    dtype: jnp.dtype,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    """Returns distributions over the last axis in `dtype`, or raises; a wrong traced one is NaN.

    The sums may differ from 1 by `rounding_of_sum`.
    """
    converted = booleans_or_reals(values, name, shape)
    result = converted.astype(dtype)
    # A device that has a part of the classes has a part of the sum.
    if class_axis_name is None and known_values(values) is not None:
        found = exact(values, result)
        refuse(found >= 0, found, name, "at least 0")
        sums_of_one(values, name)
        return result
    total = _classes.sum_classes(result, class_axis_name)
    valid = ~_classes.any_class(~(result >= 0), class_axis_name)
    valid &= jnp.abs(total - 1) <= rounding_of_sum(converted.dtype)
    return nan_unless(valid[..., None], result)


def sums_of_one(values: ArrayLike, name: str) -> None:
    """Raises if a sum over the last axis is not 1 within `rounding_of_sum`; not if it is traced."""
    concrete = known_values(values)
    if concrete is None:
        return
    sums = concrete.sum(axis=-1, dtype=np.float64)
    wrong = sums[np.abs(sums - 1) > rounding_of_sum(concrete.dtype)]
    if wrong.size:
        farthest = wrong[np.abs(wrong - 1).argmax()]
        raise ValueError(f"{name} must sum to 1 for each example, got a sum of {farthest:g}.")


def weights_of_sizes(weights: ArrayLike, name: str, maximum: int, dtype: jnp.dtype) -> jax.Array:
    """Returns the weights of the sizes 1 to K, `[K]`, or raises if they are not a distribution."""
    shape = real_numbers(weights, name).shape
    if len(shape) != 1 or not 1 <= shape[0] <= maximum:
        raise ValueError(f"{name} must have from 1 to {maximum} entries, got shape {shape}.")
    return distributions(weights, name, shape, dtype)
