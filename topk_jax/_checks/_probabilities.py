"""Probabilities, and numbers that must add up to 1."""

from collections.abc import Hashable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _classes, _numerics
from topk_jax._checks._arrays import booleans_or_reals, floating_array, real_numbers
from topk_jax._checks._given import as_floats, is_traced, known_values

__all__ = [
    "distributions",
    "log_probabilities",
    "only_probabilities",
    "probabilities",
    "rounding_of_sum",
    "sums_of_one",
    "weights_of_sizes",
]


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
    if not is_traced(given):
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
    if not is_traced(array):
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
        return _numerics.nan_unless(valid[..., None], result)
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
    converted = real_numbers(weights, name)
    if converted.ndim != 1 or not 1 <= converted.shape[0] <= maximum:
        raise ValueError(
            f"{name} must have from 1 to {maximum} entries, got shape {converted.shape}."
        )
    concrete, rounding = known_values(weights), rounding_of_sum(converted.dtype)
    result = converted.astype(dtype)
    if concrete is None:
        valid = (as_floats(converted, dtype) >= 0).all() & (jnp.abs(result.sum() - 1) <= rounding)
        return _numerics.nan_unless(valid, result)
    if not (concrete >= 0).all():
        wrong = concrete[~(concrete >= 0)].flat[0]
        raise ValueError(f"{name} must be at least 0, got {wrong:g}.")
    total = concrete.sum(dtype=np.float64)
    if abs(total - 1) > rounding:
        raise ValueError(f"{name} must sum to 1, got a sum of {total:g}.")
    return result
