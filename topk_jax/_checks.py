"""Argument checks at trace time of what losses do not share: those are in `_example`.

Every check returns the converted argument, or raises a `ValueError` or `TypeError` of one line with
the argument's name, its value and the allowed values. A traced value that is wrong becomes NaN.
"""

import numbers as kinds_of_numbers
import operator
from collections.abc import Hashable, Set
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _classes
from topk_jax._example import (
    as_array,
    axis_index,
    axis_size,
    boolean_array,
    floating_array,
    floating_numbers,
    integer_array,
    known_values,
    logits_and_labels,
    nan_unless,
    numbers,
    real_numbers,
    scalar,
    zero_elsewhere,
)

# What `_example` has, too.
__all__ = [
    "axis_index",
    "axis_size",
    "boolean_array",
    "floating_array",
    "floating_numbers",
    "integer_array",
    "logits_and_labels",
    "numbers",
    "real_numbers",
    "scalar",
]


_REAL = (jnp.bool_, jnp.floating, jnp.integer)


def static_integer(
    number: Any, name: str, *, minimum: int, maximum: int | None = None, reason: str = ""
) -> int:
    """Returns a static integer, or raises if it is outside [minimum, maximum].

    Args:
        number: the user's argument, a Python or NumPy integer, never traced.
        name: the argument's name.
        minimum: the smallest allowed value.
        maximum: the largest allowed value; no limit if `None`.
        reason: the origin of the maximum, for the message.
    """
    value = _as_int(number, name)
    if value < minimum or (maximum is not None and value > maximum):
        allowed = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        if maximum is not None and maximum < minimum:
            allowed = f"at least {minimum} and at most {maximum}, which is impossible"
        suffix = f" ({reason})" if reason else ""
        raise ValueError(f"{name} must be {allowed}{suffix}, got {value}.")
    return value


def rank(k: Any, maximum: int, *, reason: str = "the number of classes") -> int:
    """Returns the static rank or set size `k`, or raises if it is outside [1, maximum]."""
    return static_integer(k, "k", minimum=1, maximum=maximum, reason=reason)


def ranks(k: Any, maximum: int, shape: tuple[int, ...]) -> jax.Array:
    """Returns set sizes of the given shape, or raises if one is not from 1 to maximum.

    In an array, 0 is allowed too, for examples without targets. The values of a traced array cannot
    be checked.
    """
    if not isinstance(k, jax.Array | np.ndarray):
        return jnp.full(shape, rank(k, maximum))
    sizes = integer_array(k, "k", shape)
    concrete = known_values(k)
    if concrete is not None:
        outside = concrete[(concrete < 0) | (concrete > maximum)]
        if outside.size:
            raise ValueError(
                f"k must be from 0 to {maximum} (the number of classes), got {outside[0]}."
            )
    return sizes


def rank_or_sum(k: Any, maximum: int, dtype: jnp.dtype) -> int | jax.Array:
    """Returns `k` as a static integer from 1, or as a real scalar above 0, or raises.

    It is at most the number of classes. A traced number outside its range becomes NaN.
    """
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


def mean_set_size(k: Any, num_classes: int | None = None) -> Fraction:
    """Returns a static mean set size as an exact fraction, or raises if it is outside [1, L].

    The float 1.15 differs a little from the decimal 1.15, so 100 sets of that mean size could lose
    or gain a class by rounding. The fraction equals the shortest decimal for the float.
    """
    exact = _as_decimal(k, "k")
    if exact < 1 or (num_classes is not None and exact > num_classes):
        allowed = (
            "at least 1"
            if num_classes is None
            else f"from 1 to {num_classes} (the number of classes)"
        )
        raise ValueError(f"k must be {allowed}, got {k}.")
    return exact


def static_error(error: Any, *, below: Fraction = Fraction(1)) -> Fraction:
    """Returns a static error as an exact fraction, or raises if it is outside [0, `below`)."""
    exact = _as_decimal(error, "error")
    if not 0 <= exact < below:
        raise ValueError(f"error must be at least 0 and less than {float(below):g}, got {error}.")
    return exact


def static_positive(number: Any, name: str) -> Fraction:
    """Returns a static number as an exact fraction, or raises if it is not positive."""
    exact = _as_decimal(number, name)
    if exact <= 0:
        raise ValueError(f"{name} must be greater than 0, got {number}.")
    return exact


def _as_int(number: Any, name: str) -> int:
    if isinstance(number, jax.core.Tracer):
        raise TypeError(
            f"{name} must be a static integer, got a traced value: mark it static under jit."
        )
    if isinstance(number, bool | np.bool_):
        raise TypeError(f"{name} must be an integer, got {number}.")
    try:
        return operator.index(number)
    except TypeError as error:
        raise TypeError(f"{name} must be an integer, got {describe(number)}.") from error


def _as_decimal(number: Any, name: str) -> Fraction:
    if isinstance(number, jax.core.Tracer):
        raise TypeError(
            f"{name} must be a static number, got a traced value: mark it static under jit."
        )
    if isinstance(number, bool | np.bool_) or not isinstance(number, kinds_of_numbers.Real):
        raise TypeError(f"{name} must be a real number, got {describe(number)}.")
    if not np.isfinite(float(number)):
        raise ValueError(f"{name} must be a finite number, got {number}.")
    return Fraction(str(number))


def static_boolean(given: Any, name: str) -> bool:
    """Returns a static boolean, or raises for anything else."""
    if isinstance(given, jax.core.Tracer):
        raise TypeError(
            f"{name} must be a static boolean, got a traced value: mark it static under jit."
        )
    if not isinstance(given, bool | np.bool_):
        raise TypeError(f"{name} must be a boolean, got {given!r} of type {type(given).__name__}.")
    return bool(given)


def choice(given: Any, name: str, allowed: tuple[str, ...]) -> str:
    """Returns a static string, or raises if it is not one of those that are allowed."""
    if isinstance(given, jax.core.Tracer):
        raise TypeError(
            f"{name} must be a static string, got a traced value: mark it static under jit."
        )
    if not isinstance(given, str) or given not in allowed:
        listed = ", ".join(map(repr, allowed[:-1])) + f" or {allowed[-1]!r}"
        got = repr(given) if isinstance(given, str) else describe(given)
        raise ValueError(f"{name} must be {listed}, got {got}.")
    return given


def parameters_of_kind(
    kind: str, parameters: dict[str, Any], *, needed: Set[str], possible: Set[str] = frozenset()
) -> dict[str, Any]:
    """Returns the parameters that were given, by name, or raises if the kind does not have them.

    Args:
        kind: the user's choice, for the message.
        parameters: the parameters of all kinds; `None` stands for one that was not given.
        needed: the names of those that the kind needs.
        possible: the names of others that it may have.
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    for name in sorted(needed - given.keys()):
        raise ValueError(f"{name} must be given for kind {kind!r}, got None.")
    for name in sorted(given.keys() - needed - possible):
        raise ValueError(f"{name} must be None for kind {kind!r}, got {describe(given[name])}.")
    return given


def describe(given: Any) -> str:
    """A short description of the user's argument on one line; of an array, its shape."""
    if isinstance(given, jax.Array | np.ndarray):
        return f"an array of shape {given.shape}"
    words = repr(given)
    kind = f"type {type(given).__name__}"
    return f"{words} of {kind}" if len(words) <= 60 and "\n" not in words else f"one of {kind}"


def some_examples(logits: jax.Array, name: str) -> None:
    """Raises for an empty batch, whose mean is undefined."""
    if logits.size == 0:
        raise ValueError(f"{name} must have at least one example, got shape {logits.shape}.")


def logits_and_targets(
    logits: ArrayLike,
    targets: ArrayLike,
    *,
    name: str = "targets",
    where: ArrayLike | None = None,
    may_be_soft: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Returns logits and multi-label targets, both [..., L] in the logits' dtype, or raises.

    Targets are booleans or numbers: 0 or 1, or between them if they may be soft. The values of
    traced targets, and of targets beside `where`, are not checked here. NaN is allowed.
    `_numerics.nan_where_invalid_targets` turns the result of other targets into NaN. Examples that
    `where` leaves out get scores and targets of 0.
    """
    scores = floating_array(logits, "logits")
    converted = booleans_or_reals(targets, name, scores.shape).astype(scores.dtype)
    concrete = None if where is not None else known_values(targets)
    if concrete is not None:
        between = (concrete > 0) & (concrete < 1)
        is_wrong = (concrete < 0) | (concrete > 1) | (between & (not may_be_soft))
        if is_wrong.any():
            allowed = "from 0 to 1" if may_be_soft else "0 or 1"
            raise ValueError(f"{name} must be {allowed}, got {concrete[is_wrong].flat[0]}.")
    return zero_elsewhere(where, scores, converted)


def multi_hot(targets: ArrayLike, name: str, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Returns multi-label targets [..., L] as booleans, and which of them are 0 or 1, or raises.

    All concrete targets are booleans, or numbers that are 0 or 1.
    """
    converted = booleans_or_reals(targets, name, shape)
    if converted.dtype == jnp.bool_:
        return converted, jnp.ones(shape, jnp.bool_)
    concrete = known_values(targets)
    if concrete is not None and (is_wrong := (concrete != 0) & (concrete != 1)).any():
        raise ValueError(f"{name} must be 0 or 1, got {concrete[is_wrong].flat[0]}.")
    return converted == 1, (converted == 0) | (converted == 1)


def two_heads(
    first: tuple[str, ArrayLike], second: tuple[str, ArrayLike], labels: ArrayLike
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the logits of two heads, [..., L] in one dtype, and labels [...], or raises."""
    scores, labels = logits_and_labels(first[1], labels, name=first[0])
    others = floating_array(second[1], second[0])
    if others.shape != scores.shape:
        raise ValueError(f"{second[0]} must have shape {scores.shape}, got shape {others.shape}.")
    dtype = max(scores.dtype, others.dtype, key=lambda dtype: dtype.itemsize)
    return scores.astype(dtype), others.astype(dtype), labels


def booleans_or_reals(values: ArrayLike, name: str, shape: tuple[int, ...]) -> jax.Array:
    """Returns booleans or real numbers of this shape in the type that they have, or raises."""
    converted: jax.Array = as_array(values, name, "boolean or real array", _REAL)
    if converted.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got shape {converted.shape}.")
    return converted


def counting_or_real_array(array: ArrayLike, name: str) -> jax.Array:
    """Returns booleans, integers as the default integer type, or floats in at least 32 bits."""
    converted: jax.Array = as_array(array, name, "boolean or real array", _REAL)
    if converted.dtype == jnp.bool_:
        return converted
    if jnp.issubdtype(converted.dtype, jnp.floating):
        return converted.astype(jnp.float32) if converted.dtype.itemsize < 4 else converted
    concrete, limits = known_values(array), jnp.iinfo(jax.dtypes.canonicalize_dtype(jnp.int64))
    if concrete is not None and ((concrete < limits.min) | (concrete > limits.max)).any():
        raise ValueError(f"{name} must fit in {limits.bits} bits with a sign.")
    return converted.astype(int)


def real_array(values: ArrayLike, name: str, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
    """Returns real numbers of this shape in `dtype`, or raises for other values."""
    converted = real_numbers(values, name)
    if converted.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got shape {converted.shape}.")
    return converted.astype(dtype)


def within(
    values: ArrayLike, converted: jax.Array, name: str, bounds: tuple[float, float]
) -> jax.Array:
    """Returns `converted`, or raises if one of the user's `values` is outside the closed bounds.

    NaN is inside. Traced numbers that are outside become NaN.
    """
    lower, upper = bounds
    concrete = known_values(values)
    if concrete is None:
        return nan_unless((converted >= lower) & (converted <= upper), converted)
    wrong = concrete[(concrete < lower) | (concrete > upper)]
    if wrong.size:
        above = f" and at most {upper:g}" if np.isfinite(upper) else ""
        raise ValueError(f"{name} must be at least {lower:g}{above}, got {float(wrong.flat[0]):g}.")
    return converted


def descending(values: ArrayLike, name: str, dtype: jnp.dtype) -> jax.Array:
    """Returns real numbers `[m]` that never grow in `dtype`, or raises; NaN if traced ones do."""
    converted = real_numbers(values, name)
    if converted.ndim != 1 or converted.shape[0] == 0:
        raise ValueError(f"{name} must be a vector of numbers, got shape {converted.shape}.")
    concrete = known_values(values)
    if concrete is None:
        result = converted.astype(dtype)
        return nan_unless((result[1:] <= result[:-1]).all(), result)
    # NaN fails the comparison.
    if not (concrete[1:] <= concrete[:-1]).all() or np.isnan(concrete[0]):
        raise ValueError(f"{name} must never grow and not be NaN.")
    return converted.astype(dtype)


def ascending(values: ArrayLike, name: str) -> jax.Array:
    """Returns finite numbers in ascending order, a vector, or raises; NaN if traced ones are not.

    Equal neighbours are allowed.
    """
    converted = floating_array(values, name)
    if converted.ndim != 1:
        raise ValueError(f"{name} must be a vector, got shape {converted.shape}.")
    concrete = known_values(values)
    if concrete is None:
        valid = jnp.isfinite(converted).all() & (jnp.diff(converted) >= 0).all()
        return nan_unless(valid, converted)
    if not np.isfinite(concrete).all() or (np.diff(concrete) < 0).any():
        raise ValueError(f"{name} must be finite and in ascending order, got {concrete}.")
    return converted


def weights_of_examples(weights: ArrayLike, name: str, shape: tuple[int, ...]) -> jax.Array:
    """Returns weights of this shape in the default float type, or raises.

    They are finite and at least 0. A traced weight that is not becomes NaN.
    """
    # A number that overflows is refused below.
    with np.errstate(over="ignore"):
        converted = real_array(weights, name, shape, jnp.result_type(float))
    concrete = known_values(weights)
    if concrete is None:
        return nan_unless((converted >= 0) & jnp.isfinite(converted), converted)
    with np.errstate(over="ignore"):
        is_wrong = ~((concrete >= 0) & np.isfinite(concrete.astype(converted.dtype)))
    if is_wrong.any():
        wrong = float(concrete[is_wrong].flat[0])
        raise ValueError(f"{name} must be finite and at least 0, got {wrong:g}.")
    return converted


def relative_weights(
    weights: ArrayLike, name: str, num_classes: int, dtype: jnp.dtype
) -> jax.Array:
    """Returns one relative weight per class, [L], at least 0 and not all 0, or raises."""
    converted = numbers(weights, name, dtype, ((), (num_classes,)), at_least=0)
    concrete = known_values(weights)
    if concrete is None:
        converted = nan_unless((converted > 0).any(), converted)
    elif not concrete.max() >= jnp.finfo(dtype).tiny:
        largest = float(concrete.max())
        raise ValueError(
            f"{name} must not be all 0 in {np.dtype(dtype).name}, got a largest one of {largest:g}."
        )
    return jnp.broadcast_to(converted, (num_classes,))


def limits(values: ArrayLike, name: str, num_classes: int | None, dtype: jnp.dtype) -> jax.Array:
    """Returns a real scalar, or also one value for each of some classes, in `dtype`.

    Infinity and NaN are allowed, as results of calibration.
    """
    converted = real_numbers(values, name)
    if converted.shape not in ((), (num_classes,)):
        each = (
            "" if num_classes is None else f", or one value for each of the {num_classes} classes"
        )
        raise ValueError(f"{name} must be a scalar{each}, got shape {converted.shape}.")
    return converted.astype(dtype)


def training_counts(counts: ArrayLike, name: str) -> jax.Array:
    """Returns the number of training examples of each class, [L] integers; it may be 0."""
    converted = integer_array(counts, name)
    if converted.ndim != 1 or converted.shape[0] == 0:
        raise ValueError(f"{name} must have one value for each class, got shape {converted.shape}.")
    concrete = known_values(counts)
    if concrete is not None and (concrete < 0).any():
        raise ValueError(f"{name} must be at least 0 for each class, got {concrete.min()}.")
    return converted


def random_keys(key: Any, name: str, batch_shape: tuple[int, ...]) -> jax.Array:
    """Returns one key, or keys of the batch's shape, as typed keys; accepts legacy keys too."""
    if not isinstance(key, jax.Array | np.ndarray):
        raise TypeError(f"{name} must be a key made by jax.random.key, got {type(key).__name__}.")
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        try:
            key = jax.random.wrap_key_data(jnp.asarray(key))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name} must be a key made by jax.random.key, got an array of dtype {key.dtype} "
                f"and shape {key.shape}."
            ) from error
    if key.shape not in ((), batch_shape):
        raise ValueError(
            f"{name} must be one key, or an array of keys of the batch's shape {batch_shape}, "
            f"got shape {key.shape}."
        )
    return key


def rounding_of_sum(dtype: np.dtype) -> float:
    """How far a sum of probabilities may be from 1, because numbers of the given type are rounded.

    Hazard: shares that are rounded to bfloat16 may add up to 1.004. Choice: twice the eps of the
    type that the user gave, but at least 1e-4, for rounded decimals. It does not grow with the
    number of classes, because it would then accept anything. Cost: none.
    """
    eps = float(jnp.finfo(dtype).eps) if jnp.issubdtype(dtype, jnp.floating) else 0.0
    return max(1e-4, 2 * eps)


def probabilities(array: ArrayLike, name: str) -> jax.Array:
    """Returns probabilities [..., L] in float32 or float64, or raises if one is not from 0 to 1.

    Traced examples with such a number are NaN. NaN is allowed. See `rounding_of_sum`, by which
    a probability may exceed 1.
    """
    return only_probabilities(array, floating_array(array, name), name)


def only_probabilities(given: ArrayLike, converted: jax.Array, name: str) -> jax.Array:
    """Returns `converted`, or raises if one of the user's numbers is not from 0 to 1.

    Hazard: logits in place of probabilities give sets that look plausible. Cost: one pass, and the
    wait for its result, as the numbers may be on any devices.
    """
    largest = 1 + rounding_of_sum(jnp.asarray(given).dtype)
    if known_values(given) is not None:
        # `converted` is traced if the caller is, even if the numbers are not.
        with jax.ensure_compile_time_eval():
            extremes = np.asarray(_extremes(jnp.asarray(given)))
        wrong = extremes[(extremes < 0) | (extremes > largest)]
        if wrong.size:
            raise ValueError(
                f"{name} must be from 0 to 1, got {wrong[-1]:g}; jax.nn.softmax makes "
                "probabilities of logits."
            )
        return converted
    is_wrong = (converted < 0) | (converted > largest)
    return jnp.where(is_wrong.any(axis=-1, keepdims=True), jnp.nan, converted)


def log_probabilities(array: ArrayLike, name: str) -> jax.Array:
    """Returns logarithms of probabilities [..., L], or raises if one is above 0.

    Traced examples with such a number are NaN. NaN and -inf are allowed. See `only_probabilities`.
    """
    converted = floating_array(array, name)
    rounding = rounding_of_sum(jnp.asarray(array).dtype)
    if known_values(array) is not None:
        with jax.ensure_compile_time_eval():
            largest = float(_extremes(jnp.asarray(array))[1])
        if largest > rounding:
            raise ValueError(
                f"{name} must be at most 0, got {largest:g}; jax.nn.log_softmax makes "
                "log-probabilities of logits."
            )
        return converted
    is_wrong = (converted > rounding).any(axis=-1, keepdims=True)
    return jnp.where(is_wrong, jnp.nan, converted)


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
    # A device that has a part of the classes has a part of the sum.
    concrete = None if class_axis_name is not None else known_values(values)
    if concrete is None:
        result = converted.astype(dtype)
        total = _classes.sum_classes(result, class_axis_name)
        valid = ~_classes.any_class(~(result >= 0), class_axis_name)
        valid &= jnp.abs(total - 1) <= rounding_of_sum(converted.dtype)
        return nan_unless(valid[..., None], result)
    if not (concrete >= 0).all():
        wrong = concrete[~(concrete >= 0)].flat[0]
        raise ValueError(f"{name} must be at least 0, got {wrong:g}.")
    sums_of_one(concrete, name)
    return converted.astype(dtype)


def sums_of_one(values: ArrayLike, name: str) -> None:
    """Raises if one of the sums over the last axis is not 1; not if it is NaN, or traced.

    The sums may differ from 1 by `rounding_of_sum`.
    """
    concrete = known_values(values)
    if concrete is None:
        return
    sums = concrete.sum(axis=-1, dtype=np.float64)
    wrong = sums[np.abs(sums - 1) > rounding_of_sum(concrete.dtype)]
    if wrong.size:
        farthest = wrong[np.abs(wrong - 1).argmax()]
        raise ValueError(f"{name} must sum to 1 for each example, got a sum of {farthest:g}.")


def weights_of_sizes(weights: ArrayLike, name: str, maximum: int, dtype: jnp.dtype) -> jax.Array:
    """Returns the weights of the sizes 1 to K, `[K]`, or raises if they are not a distribution.

    The sum may differ from 1 by `rounding_of_sum`.
    """
    shape = real_numbers(weights, name).shape
    if len(shape) != 1 or not 1 <= shape[0] <= maximum:
        raise ValueError(f"{name} must have from 1 to {maximum} entries, got shape {shape}.")
    return distributions(weights, name, shape, dtype)
