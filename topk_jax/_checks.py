"""Argument checks at trace time: types, dtypes, shapes and concrete values.

Every check returns the converted argument, or raises a `ValueError` or `TypeError` that states the
argument's name, its value and the allowed values. Values of traced arrays cannot be read. A traced
parameter outside its range becomes NaN, so the result is NaN too. This check costs a few operations
on a scalar or on a vector with one entry per class.
"""

import numbers
import operator
from collections.abc import Hashable, Set
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _classes, _numerics

# How far a sum of probabilities may be from 1, because decimals are rounded.
ROUNDING_OF_SUM = 1e-4


def floating_array(array: ArrayLike, name: str, axis: int = -1) -> jax.Array:
    """Returns `array` in float32 or float64, or raises if its dtype or its shape is wrong."""
    converted = _as_array(array, name, "floating-point array")
    if not jnp.issubdtype(converted.dtype, jnp.floating):
        raise TypeError(f"{name} must be a floating-point array, got dtype {converted.dtype}.")
    if converted.ndim == 0 or converted.shape[axis_index(axis, converted.ndim)] == 0:
        along = "the last" if axis == -1 else f"axis {axis}"
        raise ValueError(
            f"{name} must have at least one axis and not be empty along {along}, "
            f"got shape {converted.shape}."
        )
    # Not `promote_types`: under strict promotion it refuses half precision.
    return converted.astype(jnp.float32) if converted.dtype.itemsize < 4 else converted


def probabilities(array: ArrayLike, name: str) -> jax.Array:
    """Returns probabilities [..., L] in float32 or float64, or raises if one is not from 0 to 1.

    Traced examples with such a number are NaN. NaN is allowed. See `ROUNDING_OF_SUM`, by which
    a probability may exceed 1.
    """
    return only_probabilities(array, floating_array(array, name), name)


def only_probabilities(given: ArrayLike, converted: jax.Array, name: str) -> jax.Array:
    """Returns `converted`, or raises if one of the user's numbers is not from 0 to 1.

    Hazard: logits in place of probabilities give sets that look plausible. Cost: one pass, and the
    wait for its result, as the numbers may be on any devices.
    """
    largest = 1 + ROUNDING_OF_SUM
    if not _is_traced(given):
        # `converted` is traced where the caller is, even if the numbers are not.
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
    if not _is_traced(array):
        with jax.ensure_compile_time_eval():
            largest = float(_extremes(jnp.asarray(array))[1])
        if largest > ROUNDING_OF_SUM:
            raise ValueError(
                f"{name} must be at most 0, got {largest:g}; jax.nn.log_softmax makes "
                "log-probabilities of logits."
            )
        return converted
    is_wrong = (converted > ROUNDING_OF_SUM).any(axis=-1, keepdims=True)
    return jnp.where(is_wrong, jnp.nan, converted)


@jax.jit
def _extremes(numbers: jax.Array) -> jax.Array:
    """The smallest and the largest number that is not NaN; 0 and 0 if there is none."""
    counted = jnp.where(jnp.isnan(numbers), 0, numbers)
    return jnp.stack([counted.min(initial=0), counted.max(initial=0)])


def integer_array(
    array: ArrayLike,
    name: str,
    shape: tuple[int, ...] | None = None,
    *,
    of: tuple[str, tuple[int, ...]] | None = None,
) -> jax.Array:
    """Returns `array` with at least 32 bits, or raises if it is not an integer array of this shape.

    Args:
        array: the user's argument.
        name: the argument's name.
        shape: the required shape; None for any.
        of: name and shape of the argument that determines this shape, for the message.
    """
    converted = _as_array(array, name, "integer array")
    if not jnp.issubdtype(converted.dtype, jnp.integer):
        raise TypeError(f"{name} must be an integer array, got dtype {converted.dtype}.")
    if shape is not None and converted.shape != shape:
        follows = "" if of is None else f" where {of[0]} has shape {of[1]}"
        raise ValueError(f"{name} must have shape {shape}{follows}, got shape {converted.shape}.")
    # Eight bits hold at most 256 classes; comparisons with larger indices would wrap around.
    return converted.astype(jnp.int32) if converted.dtype.itemsize < 4 else converted


def boolean_array(array: ArrayLike, name: str, shape: tuple[int, ...] | None = None) -> jax.Array:
    """Returns `array`, or raises if it is not a boolean array (of the given shape, if any)."""
    converted = _as_array(array, name, "boolean array")
    if converted.dtype != jnp.bool_:
        raise TypeError(f"{name} must be a boolean array, got dtype {converted.dtype}.")
    if shape is not None and converted.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got shape {converted.shape}.")
    return converted


def counting_array(array: ArrayLike, name: str) -> jax.Array:
    """Returns booleans or integers as the default integer type, or raises for other arrays."""
    converted = _as_array(array, name, "boolean or integer array")
    concrete = _concrete(array)
    if concrete is not None and concrete.dtype.kind in "iu":
        limits = jnp.iinfo(jax.dtypes.canonicalize_dtype(jnp.int64))
        if ((concrete < limits.min) | (concrete > limits.max)).any():
            raise ValueError(f"{name} must fit in {limits.bits} bits with a sign.")
    if converted.dtype != jnp.bool_ and not jnp.issubdtype(converted.dtype, jnp.integer):
        raise TypeError(f"{name} must be a boolean or integer array, got dtype {converted.dtype}.")
    return converted.astype(int)


def counting_or_real_array(array: ArrayLike, name: str) -> jax.Array:
    """Returns booleans or integers as the default integer type, and floats in at least 32 bits."""
    converted = _as_array(array, name, "boolean or real array")
    if not jnp.issubdtype(converted.dtype, jnp.floating):
        return counting_array(array, name)
    return converted.astype(jnp.float32) if converted.dtype.itemsize < 4 else converted


def weights_of_examples(weights: ArrayLike, name: str, shape: tuple[int, ...]) -> jax.Array:
    """Returns weights of this shape in the default float type, or raises.

    They are finite and at least 0. A traced weight that is not becomes NaN.
    """
    # A number that overflows is refused below.
    with np.errstate(over="ignore"):
        converted = real_array(weights, name, shape, jnp.result_type(float))
    concrete = _concrete(weights)
    if concrete is None:
        return _numerics.nan_unless((converted >= 0) & jnp.isfinite(converted), converted)
    with np.errstate(over="ignore"):
        is_wrong = ~((concrete >= 0) & np.isfinite(concrete.astype(converted.dtype)))
    if is_wrong.any():
        wrong = float(concrete[is_wrong].flat[0])
        raise ValueError(f"{name} must be finite and at least 0, got {wrong:g}.")
    return converted


def multi_hot(targets: ArrayLike, name: str, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Returns multi-label targets [..., L] as booleans, and which of them are 0 or 1, or raises.

    All concrete targets are booleans, or numbers that are 0 or 1.
    """
    converted = _booleans_or_reals(targets, name, shape)
    if converted.dtype == jnp.bool_:
        return converted, jnp.ones(shape, jnp.bool_)
    concrete = _concrete(targets)
    if concrete is not None and (is_wrong := (concrete != 0) & (concrete != 1)).any():
        raise ValueError(f"{name} must be 0 or 1, got {concrete[is_wrong].flat[0]}.")
    return converted == 1, (converted == 0) | (converted == 1)


def logits_and_labels(
    logits: ArrayLike, labels: ArrayLike, *, name: str = "logits", where: ArrayLike | None = None
) -> tuple[jax.Array, jax.Array]:
    """Returns logits [..., L] and labels [...], or raises if their types or shapes are wrong.

    The values of traced labels cannot be checked here. `_numerics.nan_where_invalid` turns the
    result of a label outside [0, L) into NaN. Examples that `where` leaves out get scores and a
    label of 0; see `_numerics.zero_left_out`.
    """
    scores = floating_array(logits, name)
    try:
        found = integer_array(labels, "labels", scores.shape[:-1], of=(name, scores.shape))
    except (TypeError, ValueError) as error:
        hint = _hint_at_labels(labels, scores.shape, name)
        if not hint:
            raise
        raise type(error)(str(error).removesuffix(".") + hint) from error
    return zero_elsewhere(where, scores, found)


def _hint_at_labels(labels: ArrayLike, shape: tuple[int, ...], name: str) -> str:
    """What to do about wrong labels of two other conventions."""
    given = getattr(labels, "shape", None)
    if given == shape:
        return "; losses.expect_over_labels takes one-hot and soft labels."
    if len(shape) > 2 and given == (shape[0], *shape[2:]):
        return f"; the classes are the last axis of {name}, see jnp.moveaxis."
    return ""


def zero_elsewhere(
    where: ArrayLike | None, vectors: jax.Array, others: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns vectors [..., n] and others, [...] or [..., n], with zeros where an example is out.

    Raises if `where` is neither a boolean array [...] nor `None`, which leaves out none.
    """
    if where is None:
        return vectors, others
    counts = boolean_array(where, "where", vectors.shape[:-1])
    of_vectors = counts[..., None]
    return (
        jnp.where(of_vectors, vectors, 0),
        jnp.where(counts if others.shape == counts.shape else of_vectors, others, 0),
    )


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
    converted = _booleans_or_reals(targets, name, scores.shape).astype(scores.dtype)
    concrete = None if where is not None else _concrete(targets)
    if concrete is not None:
        between = (concrete > 0) & (concrete < 1)
        is_wrong = (concrete < 0) | (concrete > 1) | (between & (not may_be_soft))
        if is_wrong.any():
            allowed = "from 0 to 1" if may_be_soft else "0 or 1"
            raise ValueError(f"{name} must be {allowed}, got {concrete[is_wrong].flat[0]}.")
    return zero_elsewhere(where, scores, converted)


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


def some_examples(logits: jax.Array, name: str) -> None:
    """Raises for an empty batch, whose mean is undefined."""
    if logits.size == 0:
        raise ValueError(f"{name} must have at least one example, got shape {logits.shape}.")


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


def axis_index(axis: Any, ndim: int) -> int:
    """Returns `axis` counted from the front, or raises if the array does not have it."""
    index = _as_int(axis, "axis")
    if not -ndim <= index < ndim:
        raise ValueError(f"axis must be from {-ndim} to {ndim - 1}, got {index}.")
    return index % ndim


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


def ranks(k: Any, maximum: int, shape: tuple[int, ...]) -> jax.Array:
    """Returns set sizes of the given shape, or raises if one is not from 1 to maximum.

    In an array, 0 is allowed too, for examples without targets. The values of a traced array cannot
    be checked.
    """
    if not isinstance(k, jax.Array | np.ndarray):
        return jnp.full(shape, rank(k, maximum))
    return _ranks_from(0, k, maximum, shape)


def rank_or_ranks(k: Any, maximum: int, shape: tuple[int, ...]) -> int | jax.Array:
    """Returns a static set size, or one for each example; raises if one is not from 1 to maximum.

    The values of a traced array cannot be checked.
    """
    if not getattr(k, "shape", ()):
        return rank(k, maximum)
    return _ranks_from(1, k, maximum, shape)


def _ranks_from(least: int, k: Any, maximum: int, shape: tuple[int, ...]) -> jax.Array:
    """Returns an array of set sizes, or raises if one is known not to be in the range."""
    sizes = integer_array(k, "k", shape)
    concrete = _concrete(k)
    if concrete is not None:
        outside = concrete[(concrete < least) | (concrete > maximum)]
        if outside.size:
            raise ValueError(
                f"k must be from {least} to {maximum} (the number of classes), got {outside[0]}."
            )
    return sizes


def scalar(
    number: ArrayLike,
    name: str,
    dtype: jnp.dtype,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> jax.Array:
    """Returns a real scalar in `dtype`, or raises if it is outside its bounds; NaN if it is traced.

    A number that becomes infinite or falls to `above` in `dtype` is refused too. XLA takes a
    denormal number for 0. A number may rise to `below`, as 1 - 1e-9 does in float32.
    """
    # A number that overflows is refused below.
    with np.errstate(over="ignore"):
        value = real_numbers(number, name)
    if value.ndim != 0:
        raise _is_no_scalar(name, value)
    # NaN fails each of these comparisons.
    bounds = [
        (at_least, "at least", operator.ge),
        (above, "greater than", operator.gt),
        (at_most, "at most", operator.le),
        (below, "less than", operator.lt),
    ]
    stated = [(bound, words, holds) for bound, words, holds in bounds if bound is not None]
    values = _concrete(number)
    if values is not None:
        given, rounded = float(values), _as_computed(values, dtype)
        allowed = [f"{words} {bound:g}" for bound, words, _ in stated] or ["a finite number"]

        def refusal(concrete: float, got: str) -> ValueError:
            finite = ["finite"] if np.isinf(concrete) and stated else []
            return ValueError(f"{name} must be {' and '.join([*finite, *allowed])}, got {got}.")

        if not all(holds(given, bound) for bound, _, holds in stated) or not np.isfinite(given):
            raise refusal(given, f"{given:g}")
        if np.isinf(rounded) or (above is not None and rounded <= above):
            counts_as = f"which counts as {rounded:g} in {np.dtype(dtype).name}"
            raise refusal(rounded, f"{given!r}, {counts_as}")
        return value.astype(dtype)
    traced, result = _as_floats(value, dtype), value.astype(dtype)
    valid = jnp.isfinite(result)
    for bound, _, holds in stated:
        valid &= holds(traced, bound)
    if above is not None:
        valid &= result > above
    return _numerics.nan_unless(valid, result)


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


def describe(given: Any) -> str:
    """A short description of the user's argument on one line; of an array, its shape."""
    if isinstance(given, jax.Array | np.ndarray):
        return f"an array of shape {given.shape}"
    words = repr(given)
    kind = f"type {type(given).__name__}"
    return f"{words} of {kind}" if len(words) <= 60 and "\n" not in words else f"one of {kind}"


def static_boolean(given: Any, name: str) -> bool:
    """Returns a static boolean, or raises for anything else."""
    if isinstance(given, jax.core.Tracer):
        raise TypeError(
            f"{name} must be a static boolean, got a traced value: mark it static under jit."
        )
    if not isinstance(given, bool | np.bool_):
        raise TypeError(f"{name} must be a boolean, got {given!r} of type {type(given).__name__}.")
    return bool(given)


def weights_of_sizes(weights: ArrayLike, name: str, maximum: int, dtype: jnp.dtype) -> jax.Array:
    """Returns the weights of the sizes 1 to K, `[K]`, or raises if they are not a distribution.

    The sum may differ from 1 by `ROUNDING_OF_SUM`.
    """
    converted = real_numbers(weights, name)
    if converted.ndim != 1 or not 1 <= converted.shape[0] <= maximum:
        raise ValueError(
            f"{name} must have from 1 to {maximum} entries, got shape {converted.shape}."
        )
    concrete = _concrete(weights)
    if concrete is not None:
        if not (concrete >= 0).all():
            wrong = concrete[~(concrete >= 0)].flat[0]
            raise ValueError(f"{name} must be at least 0, got {wrong:g}.")
        if abs(concrete.sum() - 1) > ROUNDING_OF_SUM:
            raise ValueError(f"{name} must sum to 1, got a sum of {concrete.sum():g}.")
        return converted.astype(dtype)
    traced = _as_floats(converted, dtype)
    valid = (traced >= 0).all() & (jnp.abs(traced.sum() - 1) <= ROUNDING_OF_SUM)
    return _numerics.nan_unless(valid, converted.astype(dtype))


def threshold(number: ArrayLike, dtype: jnp.dtype) -> jax.Array:
    """Returns a real scalar in `dtype`. Infinity and NaN are allowed, as results of calibration."""
    value = real_numbers(number, "threshold")
    if value.ndim != 0:
        raise _is_no_scalar("threshold", value)
    return value.astype(dtype)


def _is_no_scalar(name: str, value: jax.Array | np.ndarray) -> ValueError:
    return ValueError(
        f"{name} must be a scalar, got shape {value.shape}; jax.vmap takes one of each example."
    )


def limits(values: ArrayLike, name: str, num_classes: int, dtype: jnp.dtype) -> jax.Array:
    """Returns a real scalar or one value per class in `dtype`.

    Infinity and NaN are allowed, as results of calibration.
    """
    converted = real_numbers(values, name)
    if converted.shape not in ((), (num_classes,)):
        raise ValueError(
            f"{name} must be a scalar or have one value for each of the {num_classes} classes, "
            f"got shape {converted.shape}."
        )
    return converted.astype(dtype)


def distributions(
    values: ArrayLike,
    name: str,
    shape: tuple[int, ...],
    dtype: jnp.dtype,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    """Returns distributions over the last axis in `dtype`, or raises; NaN if a traced one is none.

    The sums may differ from 1 by `ROUNDING_OF_SUM`.
    """
    converted = _booleans_or_reals(values, name, shape)
    # A device that has a part of the classes has a part of the sum.
    concrete = None if class_axis_name is not None else _concrete(values)
    if concrete is None:
        result = converted.astype(dtype)
        total = _classes.sum_classes(result, class_axis_name)
        valid = ~_classes.any_class(~(result >= 0), class_axis_name)
        valid &= jnp.abs(total - 1) <= ROUNDING_OF_SUM
        return _numerics.nan_unless(valid[..., None], result)
    if not (concrete >= 0).all():
        wrong = concrete[~(concrete >= 0)].flat[0]
        raise ValueError(f"{name} must be at least 0, got {wrong:g}.")
    sums_of_one(concrete, name)
    return converted.astype(dtype)


def sums_of_one(values: ArrayLike, name: str) -> None:
    """Raises if one of the sums over the last axis is not 1; not if it is NaN, or traced.

    The sums may differ from 1 by `ROUNDING_OF_SUM`.
    """
    concrete = _concrete(values)
    if concrete is None:
        return
    sums = concrete.sum(axis=-1, dtype=np.float64)
    wrong = sums[np.abs(sums - 1) > ROUNDING_OF_SUM]
    if wrong.size:
        farthest = wrong[np.abs(wrong - 1).argmax()]
        raise ValueError(f"{name} must sum to 1 for each example, got a sum of {farthest:g}.")


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


def finite_vector(values: ArrayLike, name: str, size: int, dtype: jnp.dtype) -> jax.Array:
    """Returns finite real numbers `[size]` in `dtype`, or raises; NaN if they are traced."""
    converted = real_array(values, name, (size,), dtype)
    concrete = _concrete(values)
    if concrete is None:
        return _numerics.nan_unless(jnp.isfinite(converted).all(), converted)
    if not np.isfinite(concrete).all():
        wrong = concrete[~np.isfinite(concrete)].flat[0]
        raise ValueError(f"{name} must be finite, got {wrong:g}.")
    return converted


def weights_of_depths(
    weights: ArrayLike, depth: int, dtype: jnp.dtype
) -> tuple[jax.Array, tuple[bool, ...]]:
    """Returns weights `[D]` that are at least 0, and which of them are not a concrete 0."""
    converted = finite_vector(weights, "weights", depth, dtype)
    concrete = _concrete(weights)
    if concrete is None:
        return _numerics.nan_unless((converted >= 0).all(), converted), (True,) * depth
    if (concrete < 0).any():
        raise ValueError(f"weights must be at least 0, got {concrete.min():g}.")
    return converted, tuple((concrete != 0).tolist())


def descending(values: ArrayLike, name: str, dtype: jnp.dtype) -> jax.Array:
    """Returns real numbers `[m]` that never grow in `dtype`, or raises; NaN if traced ones do."""
    converted = real_numbers(values, name)
    if converted.ndim != 1 or converted.shape[0] == 0:
        raise ValueError(f"{name} must be a vector of numbers, got shape {converted.shape}.")
    concrete = _concrete(values)
    if concrete is None:
        result = converted.astype(dtype)
        return _numerics.nan_unless((result[1:] <= result[:-1]).all(), result)
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
    concrete = _concrete(values)
    if concrete is None:
        valid = jnp.isfinite(converted).all() & (jnp.diff(converted) >= 0).all()
        return _numerics.nan_unless(valid, converted)
    if not np.isfinite(concrete).all() or (np.diff(concrete) < 0).any():
        raise ValueError(f"{name} must be finite and in ascending order, got {concrete}.")
    return converted


def within(
    values: ArrayLike, converted: jax.Array, name: str, bounds: tuple[float, float]
) -> jax.Array:
    """Returns `converted`, or raises if one of the user's `values` is outside the closed bounds.

    NaN is inside. Traced numbers that are outside become NaN.
    """
    lower, upper = bounds
    concrete = _concrete(values)
    if concrete is None:
        return jnp.where((converted < lower) | (converted > upper), jnp.nan, converted)
    wrong = concrete[(concrete < lower) | (concrete > upper)]
    if wrong.size:
        above = f" and at most {upper:g}" if np.isfinite(upper) else ""
        raise ValueError(f"{name} must be at least {lower:g}{above}, got {float(wrong.flat[0]):g}.")
    return converted


def real_array(values: ArrayLike, name: str, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
    """Returns real numbers of this shape in `dtype`, or raises for other values."""
    converted = real_numbers(values, name)
    if converted.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got shape {converted.shape}.")
    return converted.astype(dtype)


def per_class(
    values: ArrayLike,
    name: str,
    num_classes: int,
    dtype: jnp.dtype,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    """Returns a scalar or one real value per class in `dtype`, or raises for a wrong value.

    Values are finite in `dtype` and at least 0. Traced values are all NaN if one is wrong, also on
    another device along the axis that the classes are split along.
    """
    # A value that overflows is refused below.
    with np.errstate(over="ignore"):
        converted = real_numbers(values, name)
    if converted.shape not in ((), (num_classes,)):
        raise ValueError(
            f"{name} must be a scalar or have one value for each of the {num_classes} classes, "
            f"got shape {converted.shape}."
        )
    concrete = _concrete(values)
    if concrete is None:
        result = converted.astype(dtype)
        wrong = ~((result >= 0) & jnp.isfinite(result))
        if wrong.ndim:
            wrong = _classes.any_class(wrong, class_axis_name)
        return _numerics.nan_unless(~wrong, result)
    if not (concrete >= 0).all():
        wrong = concrete[~(concrete >= 0)].flat[0]
        raise ValueError(f"{name} must be at least 0, got {wrong:g}.")
    largest = concrete.max(initial=0)
    if not np.isfinite(_as_computed(largest, dtype)):
        raise ValueError(f"{name} must be finite in {np.dtype(dtype).name}, got {largest:g}.")
    return converted.astype(dtype)


def relative_weights(
    weights: ArrayLike, name: str, num_classes: int, dtype: jnp.dtype
) -> jax.Array:
    """Returns one relative weight per class, [L], or raises if the ratios are undefined.

    Infinite weights have no ratios, and neither have weights that are all 0. If the weights are
    traced, all of them become NaN.
    """
    converted = per_class(weights, name, num_classes, dtype)
    concrete = _concrete(weights)
    if concrete is None:
        converted = _numerics.nan_unless((converted > 0).any(), converted)
    elif _as_computed(largest := concrete.max(), dtype) <= 0:
        raise ValueError(
            f"{name} must not be all 0 in {np.dtype(dtype).name}, got a largest one of "
            f"{float(largest):g}."
        )
    return jnp.broadcast_to(converted, (num_classes,))


def class_counts(counts: ArrayLike, name: str, num_classes: int | None = None) -> jax.Array:
    """Returns the number of examples of each class, [L], or raises if one is not positive.

    Their sum, and each count divided by it, have to be within the range of float32, for any type of
    the scores. Traced counts are all NaN if one is wrong.

    Args:
        counts: the user's argument.
        name: the argument's name.
        num_classes: L, if another argument determines it.
    """
    # A number that overflows is refused below.
    with np.errstate(over="ignore"):
        converted = real_numbers(counts, name)
    if num_classes is not None and converted.shape != (num_classes,):
        raise ValueError(
            f"{name} must have one value for each of the {num_classes} classes, got shape "
            f"{converted.shape}."
        )
    if converted.ndim != 1 or converted.shape[0] == 0:
        raise ValueError(f"{name} must have one value for each class, got shape {converted.shape}.")
    concrete = _concrete(counts)
    limits = np.finfo(np.float32)
    if concrete is None:
        wide = jnp.float64 if converted.dtype == jnp.float64 else jnp.result_type(float)
        traced = converted.astype(wide)
        fewest, sum_of_all = traced.min(), traced.sum()
        # A NaN or an infinite count fails these comparisons, and so does the quotient of a count of
        # 0. Python numbers, which any dtype takes under strict promotion.
        valid = jnp.minimum(fewest, fewest / sum_of_all) >= float(limits.tiny)
        valid &= sum_of_all <= float(limits.max)
        return _numerics.nan_unless(valid, traced)
    positive = (concrete > 0) & np.isfinite(concrete)
    if not positive.all():
        wrong = int(positive.argmin())
        raise ValueError(
            f"{name} must be positive and finite for each class, got {concrete[wrong]} for "
            f"class {wrong}."
        )
    smallest, total = float(concrete.min()), concrete.sum(dtype=np.float64)
    if min(smallest, smallest / total) < limits.tiny or total > limits.max:
        raise ValueError(
            f"{name} must have a sum and shares of it that are within float32, got counts from "
            f"{smallest:g} to {concrete.max():g}."
        )
    return converted


def training_counts(counts: ArrayLike, name: str) -> jax.Array:
    """Returns the number of training examples of each class, [L] integers; it may be 0."""
    converted = _as_array(counts, name, "integer array")
    converted = integer_array(converted, name, converted.shape)
    if converted.ndim != 1 or converted.shape[0] == 0:
        raise ValueError(f"{name} must have one value for each class, got shape {converted.shape}.")
    concrete = _concrete(counts)
    if concrete is not None and (concrete < 0).any():
        raise ValueError(f"{name} must be at least 0 for each class, got {concrete.min()}.")
    return converted


def real_numbers(values: ArrayLike, name: str) -> jax.Array:
    """Returns real numbers in the type that they have, or as floats if they are concrete integers.

    Raises `TypeError` for other values.
    """
    concrete = None if isinstance(values, jax.Array) else _concrete(values)
    if concrete is not None and concrete.dtype.kind in "iu":
        # Integers of any size are rounded to floats.
        values = concrete.astype(np.float64)
    converted = _as_array(values, name, "real number or array")
    if not (
        jnp.issubdtype(converted.dtype, jnp.floating)
        or jnp.issubdtype(converted.dtype, jnp.integer)
    ):
        raise TypeError(f"{name} must be real, got dtype {converted.dtype}.")
    return converted


def _booleans_or_reals(values: ArrayLike, name: str, shape: tuple[int, ...]) -> jax.Array:
    """Returns booleans or real numbers of this shape in the type that they have, or raises."""
    converted = _as_array(values, name, "boolean or real array")
    if converted.dtype != jnp.bool_:
        converted = real_numbers(converted, name)
    if converted.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got shape {converted.shape}.")
    return converted


def _as_array(array: Any, name: str, expected: str) -> jax.Array:
    try:
        if not isinstance(array, jax.Array):
            array = _saturated(array)
        return jnp.asarray(array)
    except (TypeError, ValueError, OverflowError) as error:
        article = "an" if expected[0] in "aeiou" else "a"
        raise TypeError(
            f"{name} must be {article} {expected}, got {type(array).__name__}."
        ) from error


def _as_floats(values: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Traced values to compare with bounds, before they are rounded to `dtype`."""
    return values if jnp.issubdtype(values.dtype, jnp.floating) else values.astype(dtype)


def _saturated(given: Any) -> Any:
    """Clips concrete integers to the range of JAX's integer type.

    Hazard: without 64-bit mode JAX wraps around, and a label of 2^32 would become 0. Choice: the
    closest bound, which is out of range too. Cost: one pass on the host over 64-bit arrays.
    """
    concrete = _concrete(given)
    if concrete is None or concrete.dtype.kind not in "iu":
        return given
    fitting = jax.dtypes.canonicalize_dtype(concrete.dtype)
    if fitting == concrete.dtype:
        return given
    limits = np.iinfo(fitting)
    return concrete.clip(limits.min, limits.max).astype(fitting)


def _concrete(given: Any) -> np.ndarray | None:
    """The values of the user's argument, or `None` if they are traced.

    Do not pass a converted argument: under jit, conversion turns a constant into a traced value.
    """
    return None if _is_traced(given) else np.asarray(given)


def _is_traced(given: Any) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(given))


def _as_computed(number: np.ndarray, dtype: jnp.dtype) -> float:
    """A scalar as XLA has it in `dtype`: rounded, and 0 for a denormal number."""
    with np.errstate(over="ignore"):
        rounded = float(number.astype(dtype))
    return 0.0 if abs(rounded) < jnp.finfo(dtype).tiny else rounded


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
    if isinstance(number, bool | np.bool_) or not isinstance(number, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {describe(number)}.")
    if not np.isfinite(float(number)):
        raise ValueError(f"{name} must be a finite number, got {number}.")
    return Fraction(str(number))
