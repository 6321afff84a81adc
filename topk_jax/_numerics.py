"""Numerical conventions that all losses and operators share.

`class_axis_name` is the mapped axis that the classes are split along, or `None`: see `_classes`.
"""

from collections.abc import Hashable

import jax
import jax.numpy as jnp

from topk_jax import _classes, _sharding
from topk_jax._entries import take_entries
from topk_jax._example import FLOOR, nan_unless

__all__ = ["FLOOR", "nan_unless"]


def rounding_to_spare(dtype: jnp.dtype) -> float:
    """How far, relatively, a sum may be from what is required of it: 16 roundings."""
    return 16.0 * float(jnp.finfo(dtype).eps)


def finite_scores(logits: jax.Array) -> jax.Array:
    """Replaces -inf, a masked class, by a finite score below all others.

    Hazard: the difference of two masked scores is NaN. Choice: a finite floor with zero gradient.
    Cost: one elementwise pass, which XLA fuses into the next one.

    Hazard: XLA on the CPU computes a maximum by one instruction that may lose a NaN. Choice:
    results are marked with NaN by the given scores, not by the result of this function.
    """
    return jnp.maximum(logits, FLOOR)


def flush(values: jax.Array) -> jax.Array:
    """The values with denormal numbers, and -0, replaced by 0."""
    return jnp.where(jnp.abs(values) < jnp.finfo(values.dtype).tiny, 0.0, values)


def score_of_label(
    logits: jax.Array, labels: jax.Array, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The score of the true class, `[...]`. A label out of range gives some number.

    `Scores.mark` turns the results of such labels into NaN. JAX would silently clamp or wrap
    the labels.
    """
    if class_axis_name is not None:
        return _classes.take(logits, labels[..., None], class_axis_name)[..., 0]
    return take_entries(logits, _clip(labels, logits)[..., None])[..., 0]


def _clip(labels: jax.Array, scores: jax.Array) -> jax.Array:
    return jnp.clip(labels, 0, scores.shape[-1] - 1)


def value_of_class(
    values: jax.Array, labels: jax.Array, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The value, or row, of each label, from a scalar or from one value or row per class."""
    if values.ndim == 0:
        return values
    if class_axis_name is not None:
        return _classes.take_shared(values, labels, class_axis_name)

    def of_labels(labels: jax.Array, values: jax.Array) -> jax.Array:
        return values.at[labels].get(mode="clip")

    return _sharding.map_examples(of_labels, labels.ndim, labels, shared=(values,))


def is_label(
    scores: jax.Array, labels: jax.Array, class_axis_name: Hashable | None = None
) -> jax.Array:
    """A mask of the true class, `[..., L]`. It is all false for a label out of range."""
    labels = _classes.localize(labels, scores.shape[-1], class_axis_name)
    classes = jax.lax.broadcasted_iota(labels.dtype, scores.shape, scores.ndim - 1)
    return labels[..., None] == classes


def without_label(
    scores: jax.Array, labels: jax.Array, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The scores [..., L] with -inf, which is below `FLOOR`, at the true class."""
    # With an empty batch, `jnp.where` returns its second argument, which has to vary as the scores
    # do.
    return jnp.where(~is_label(scores, labels, class_axis_name), scores, -jnp.inf)


def valid_examples(
    logits: jax.Array, labels: jax.Array, class_axis_name: Hashable | None = None
) -> jax.Array:
    """Whether no logit is NaN and the label is in [0, L), `[...]`."""
    in_range = (labels >= 0) & (labels < _classes.count(logits, class_axis_name))
    return in_range & ~_classes.any_class(jnp.isnan(logits), class_axis_name)


def nan_where_invalid_scores(
    values: jax.Array, scores: jax.Array, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The values [...] of score vectors [..., L], with NaN where a score is NaN or +inf."""
    return nan_unless(are_scores(scores, class_axis_name), values)


def are_scores(scores: jax.Array, class_axis_name: Hashable | None = None) -> jax.Array:
    """Whether no score is NaN or +inf, `[...]`.

    A NaN fails the comparison too. A network whose scores overflow is as broken as one with NaN.
    """
    return ~_classes.any_class(~(scores < jnp.inf), class_axis_name)


def nan_where_invalid_targets(
    values: jax.Array, scores: jax.Array, targets: jax.Array, *, may_be_soft: bool = False
) -> jax.Array:
    """The values [...], with NaN where a score is NaN or +inf or a target is neither 0 nor 1.

    Targets that may be soft are from 0 to 1.
    """
    is_right = (targets >= 0) & (targets <= 1) if may_be_soft else (targets == 0) | (targets == 1)
    return nan_unless(is_right.all(axis=-1), nan_where_invalid_scores(values, scores))


def nan_where_invalid_vectors(
    values: jax.Array, scores: jax.Array, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The vectors `[..., m]` of score vectors `[..., L]`: all NaN where a score is NaN or +inf."""
    return nan_unless(are_scores(scores, class_axis_name)[..., None], values)


@jax.custom_jvp
def with_slope_of(values: jax.Array, others: jax.Array) -> jax.Array:
    """The values, with the derivative of other values that equal them up to rounding.

    Hazard: if vmap adds an axis only to the others, JAX gives it to the slopes and not to the
    values, and the derivative of a compiled function fails. Choice: the values have it, too. Cost:
    none, because the compiler sees that both sides are the same.
    """
    return jnp.where(jnp.isnan(others), values, values)


@with_slope_of.defjvp
def _with_slope_of_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    # The same function again, so that the value has the derivative in its second derivatives too.
    return with_slope_of(*primals), tangents[1]
