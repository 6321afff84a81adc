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
    "ROUNDING_OF_SUM",
    "distributions",
    "log_probabilities",
    "only_probabilities",
    "probabilities",
    "sums_of_one",
    "weights_of_sizes",
]

# How far a sum of probabilities may be from 1, because decimals are rounded.
ROUNDING_OF_SUM = 1e-4


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
    if not is_traced(array):
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


def distributions(
    values: ArrayLike,
    name: str,
    shape: tuple[int, ...],
    dtype: jnp.dtype,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    """Returns distributions over the last axis in `dtype`, or raises; a wrong traced one is NaN.

    The sums may differ from 1 by `ROUNDING_OF_SUM`.
    """
    converted = booleans_or_reals(values, name, shape)
    # A device that has a part of the classes has a part of the sum.
    concrete = None if class_axis_name is not None else known_values(values)
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
    concrete = known_values(values)
    if concrete is None:
        return
    sums = concrete.sum(axis=-1, dtype=np.float64)
    wrong = sums[np.abs(sums - 1) > ROUNDING_OF_SUM]
    if wrong.size:
        farthest = wrong[np.abs(wrong - 1).argmax()]
        raise ValueError(f"{name} must sum to 1 for each example, got a sum of {farthest:g}.")


def weights_of_sizes(weights: ArrayLike, name: str, maximum: int, dtype: jnp.dtype) -> jax.Array:
    """Returns the weights of the sizes 1 to K, `[K]`, or raises if they are not a distribution.

    The sum may differ from 1 by `ROUNDING_OF_SUM`.
    """
    converted = real_numbers(weights, name)
    if converted.ndim != 1 or not 1 <= converted.shape[0] <= maximum:
        raise ValueError(
            f"{name} must have from 1 to {maximum} entries, got shape {converted.shape}."
        )
    concrete = known_values(weights)
    if concrete is not None:
        if not (concrete >= 0).all():
            wrong = concrete[~(concrete >= 0)].flat[0]
            raise ValueError(f"{name} must be at least 0, got {wrong:g}.")
        if abs(concrete.sum() - 1) > ROUNDING_OF_SUM:
            raise ValueError(f"{name} must sum to 1, got a sum of {concrete.sum():g}.")
        return converted.astype(dtype)
    traced = as_floats(converted, dtype)
    valid = (traced >= 0).all() & (jnp.abs(traced.sum() - 1) <= ROUNDING_OF_SUM)
    return _numerics.nan_unless(valid, converted.astype(dtype))
