"""Real scalars and vectors within their bounds."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _numerics
from topk_jax._checks._arrays import floating_array, real_array, real_numbers
from topk_jax._checks._given import as_computed, as_floats, known_values
from topk_jax._checks._static import rank

__all__ = [
    "ascending",
    "descending",
    "finite_vector",
    "rank_or_sum",
    "scalar",
    "threshold",
    "weights_of_depths",
    "within",
]


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
    values = known_values(number)
    if values is not None:
        given, rounded = float(values), as_computed(values, dtype)
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
    traced, result = as_floats(value, dtype), value.astype(dtype)
    valid = jnp.isfinite(result)
    for bound, _, holds in stated:
        valid &= holds(traced, bound)
    if above is not None:
        valid &= result > above
    return _numerics.nan_unless(valid, result)


def rank_or_sum(k: Any, maximum: int, dtype: jnp.dtype) -> int | jax.Array:
    """Returns `k` as a static integer from 1, or as a real scalar above 0, or raises.

    It is at most the number of classes. A traced number outside its range becomes NaN.
    """
    if isinstance(k, int | np.integer) and not isinstance(k, bool):
        return rank(k, maximum)
    return scalar(k, "k", dtype, above=0, at_most=maximum)


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


def within(
    values: ArrayLike, converted: jax.Array, name: str, bounds: tuple[float, float]
) -> jax.Array:
    """Returns `converted`, or raises if one of the user's `values` is outside the closed bounds.

    NaN is inside. Traced numbers that are outside become NaN.
    """
    lower, upper = bounds
    concrete = known_values(values)
    if concrete is None:
        return _numerics.nan_unless((converted >= lower) & (converted <= upper), converted)
    wrong = concrete[(concrete < lower) | (concrete > upper)]
    if wrong.size:
        above = f" and at most {upper:g}" if np.isfinite(upper) else ""
        raise ValueError(f"{name} must be at least {lower:g}{above}, got {float(wrong.flat[0]):g}.")
    return converted


def finite_vector(values: ArrayLike, name: str, size: int, dtype: jnp.dtype) -> jax.Array:
    """Returns finite real numbers `[size]` in `dtype`, or raises; NaN if they are traced."""
    converted = real_array(values, name, (size,), dtype)
    concrete = known_values(values)
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
    concrete = known_values(weights)
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
    concrete = known_values(values)
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
    concrete = known_values(values)
    if concrete is None:
        valid = jnp.isfinite(converted).all() & (jnp.diff(converted) >= 0).all()
        return _numerics.nan_unless(valid, converted)
    if not np.isfinite(concrete).all() or (np.diff(concrete) < 0).any():
        raise ValueError(f"{name} must be finite and in ascending order, got {concrete}.")
    return converted
