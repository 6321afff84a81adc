"""Arguments with an entry for each class."""

from collections.abc import Hashable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _classes, _numerics
from topk_jax._checks._arrays import integer_array, real_numbers
from topk_jax._checks._given import as_array, as_computed, known_values

__all__ = ["class_counts", "limits", "per_class", "relative_weights", "training_counts"]


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
    concrete = known_values(values)
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
    if not np.isfinite(as_computed(largest, dtype)):
        raise ValueError(f"{name} must be finite in {np.dtype(dtype).name}, got {largest:g}.")
    return converted.astype(dtype)


def relative_weights(
    weights: ArrayLike, name: str, num_classes: int, dtype: jnp.dtype
) -> jax.Array:
    """Returns one relative weight per class, [L], or raises if the ratios are undefined.

    The ratios of infinite weights, and of weights that are all 0, are undefined. If the weights are
    traced, all of them become NaN.
    """
    converted = per_class(weights, name, num_classes, dtype)
    concrete = known_values(weights)
    if concrete is None:
        converted = _numerics.nan_unless((converted > 0).any(), converted)
    elif as_computed(largest := concrete.max(), dtype) <= 0:
        raise ValueError(
            f"{name} must not be all 0 in {np.dtype(dtype).name}, got a largest one of "
            f"{float(largest):g}."
        )
    return jnp.broadcast_to(converted, (num_classes,))


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
    concrete = known_values(counts)
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
    converted = as_array(counts, name, "integer array")
    converted = integer_array(converted, name, converted.shape)
    if converted.ndim != 1 or converted.shape[0] == 0:
        raise ValueError(f"{name} must have one value for each class, got shape {converted.shape}.")
    concrete = known_values(counts)
    if concrete is not None and (concrete < 0).any():
        raise ValueError(f"{name} must be at least 0 for each class, got {concrete.min()}.")
    return converted
