"""Whether sets of classes have the true class, and how large they are."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes, _numerics, _selection

__all__ = ["label_ranks", "set_sizes", "threshold_hits", "top_k_hits"]


@_class_axis.allow_split()
def label_ranks(
    scores: ArrayLike, labels: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""How many classes come before the true class when they are ordered by their scores.

    .. math::
        r(s, y) = \#\{ j : s_j > s_y \text{, or } s_j = s_y \text{ and } j < y \}

    The true class is among the k classes with the largest scores if its rank is less than k. So the
    ranks give `top_k_hits` for every k.

    Args:
        scores: floating-point scores or probabilities, `[..., L]`.
        labels: integer classes, `[...]`.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        Integers, `[...]`, from 0 to L - 1. Where a score is NaN or the label is outside [0, L), the
        rank is L, which is not less than any k.

    Raises:
        TypeError: `scores` is not floating-point or `labels` is not integer.
        ValueError: the shapes do not match.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> scores = jnp.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
        >>> print(metrics.label_ranks(scores, jnp.array([0, 2])))
        [0 2]

    See Also:
        `top_k_hits`, `rank_calibrated_quantiles`.

    Source: Garcin (2023), thesis, equation 2.13.
    """
    scores, labels = _checks.logits_and_labels(scores, labels, name="scores")
    return _label_ranks(scores, labels, class_axis_name)


@_class_axis.allow_split()
def top_k_hits(
    scores: ArrayLike, labels: ArrayLike, *, k: int, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""Whether the true class is among the k classes with the largest scores.

    .. math::
        h(s, y) = \mathbf 1 \big[ \#\{ j : s_j > s_y \text{, or } s_j = s_y \text{ and } j < y \}
        < k \big]

    Ties go to the class with the lower index, as in `sets.top_k_set`. So constant scores do not hit
    every class.

    Args:
        scores: floating-point scores or probabilities, `[..., L]`.
        labels: integer classes, `[...]`.
        k: static set size, from 1 to L.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        Booleans, `[...]`. NaN scores and labels outside [0, L) are misses.

    Raises:
        TypeError: `scores` is not floating-point, `labels` is not integer, or `k` is not a static
            integer.
        ValueError: the shapes do not match or `k` is outside [1, L].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> scores = jnp.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
        >>> print(metrics.top_k_hits(scores, jnp.array([1, 2]), k=2))
        [ True False]

    See Also:
        `accuracy`, `label_ranks`, `top_k_set`.

    Source: Garcin (2023), thesis, equation 2.13.
    """
    scores, labels = _checks.logits_and_labels(scores, labels, name="scores")
    k = _checks.rank(k, _classes.count(scores, class_axis_name))
    return _label_ranks(scores, labels, class_axis_name) < k


@_class_axis.allow_split()
def threshold_hits(
    probabilities: ArrayLike,
    labels: ArrayLike,
    threshold: ArrayLike,
    *,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""Whether the probability of the true class reaches a threshold.

    .. math:: h(p, y) = \mathbf 1[p_y \ge \lambda]

    Args:
        probabilities: floating-point, `[..., L]`.
        labels: integer classes, `[...]`.
        threshold: a real scalar, as for `sets.threshold_set`.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        Booleans, `[...]`. NaN probabilities, labels outside [0, L) and a NaN threshold are misses.

    Raises:
        TypeError: `probabilities` is not floating-point, `labels` is not integer or `threshold` is
            not real.
        ValueError: the shapes do not match or `threshold` is not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> probabilities = jnp.array([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]])
        >>> print(metrics.threshold_hits(probabilities, jnp.array([1, 2]), 0.25))
        [ True False]

    See Also:
        `accuracy`, `threshold_set`.

    Source: Garcin (2023), thesis, equations 5.16 and 5.17.
    """
    values, labels = _checks.logits_and_labels(probabilities, labels, name="probabilities")
    threshold = _checks.threshold(threshold, values.dtype)
    reached = _numerics.score_of_label(values, labels, class_axis_name) >= threshold
    return reached & _numerics.valid_examples(values, labels, class_axis_name)


@_class_axis.allow_split()
def set_sizes(chosen: ArrayLike, *, class_axis_name: Hashable | None = None) -> jax.Array:
    """The number of classes in each set; `tally` gives their mean.

    Args:
        chosen: booleans, `[..., L]`, as the functions of `sets` return them.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        Integers, `[...]`.

    Raises:
        TypeError: `chosen` is not boolean.
        ValueError: `chosen` has no axis.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> print(metrics.set_sizes(jnp.array([[True, True, False], [True, False, False]])))
        [2 1]

    See Also:
        `threshold_hits`, `tally`.

    Source: Garcin (2023), thesis, equation 2.1.
    """
    chosen = _checks.boolean_array(chosen, "chosen")
    if chosen.ndim == 0:
        raise ValueError(f"chosen must have an axis of classes, got shape {chosen.shape}.")
    return _classes.sum_classes(chosen, class_axis_name)


@partial(jax.jit, static_argnums=2)
def _label_ranks(
    scores: jax.Array, labels: jax.Array, class_axis_name: Hashable | None
) -> jax.Array:
    """Ranks in one pass and without a sort.

    Hazard: XLA may compute a score again for each use, with different rounding. A class could then
    rank before itself. Choice: compute the scores once. Cost: they are stored.
    """
    scores = _selection.compute_once(scores)
    score = _numerics.score_of_label(scores, labels, class_axis_name)[..., None]
    larger = scores > score
    own_labels = _classes.localize(labels, scores.shape[-1], class_axis_name)
    classes = jax.lax.broadcasted_iota(own_labels.dtype, scores.shape, scores.ndim - 1)
    tied_before = (scores == score) & (classes < own_labels[..., None])
    rank = _classes.sum_classes(larger | tied_before, class_axis_name)
    valid = _numerics.valid_examples(scores, labels, class_axis_name)
    return jnp.where(valid, rank, _classes.count(scores, class_axis_name))
