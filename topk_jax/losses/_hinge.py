"""Hinges on the k-th largest score, and the top-k error that they bound.

Each hinge applies `nan_where_invalid` to its argument. If it were applied to the result, an
inactive hinge would keep the NaN of an invalid example out of the gradient.
"""

from __future__ import annotations

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes, _numerics
from topk_jax._entries import in_ascending_order
from topk_jax.operators._top_k import (
    compute_top_k_value,
    select_largest,
    select_largest_of_split,
)

__all__ = ["calibrated_top_k_hinge", "convex_top_k_hinge", "top_k_error", "top_k_hinge"]

REASON_WITHOUT_LABEL = "the number of classes without the true one"
REASON_NEXT_RANK = "the number of classes minus one, because rank k + 1 is used"


@_class_axis.allow_split()
def top_k_error(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""Whether the true class is missing from the k highest scores, 1 or 0.

    .. math:: \ell(s, y) = \mathbb 1\{s_{[k]} > s_y\}

    A tie of the true class with the k-th score is not an error. The gradient is zero.

    Args:
        logits: floating-point scores, `[..., L]`.
        labels: integer classes, `[...]`.
        k: static set size, from 1 to L.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        0 or 1 for each example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf,
        or the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `k` is not a static
            integer.
        ValueError: the shapes do not match, or `k` is outside [1, L].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        >>> print(losses.top_k_error(logits, jnp.array([1, 2]), k=2))
        [0. 1.]

    See Also:
        `top_k_hinge`, `top_k_hits`.

    Source: Garcin (2023), thesis, equation 4.3.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    k = _checks.rank(k, _classes.count(scores, class_axis_name))
    scores, labels = _few_classes(scores, labels, k, class_axis_name)
    gap = compute_top_k_value(scores, k) - _numerics.score_of_label(scores, labels)
    # Hazard: XLA rewrites the product of a comparison and a number as a selection, which loses a
    # NaN. Choice: the sign of a number that is already NaN. Cost: none.
    losses = jnp.sign(jax.nn.relu(_numerics.nan_where_invalid(gap, scores, labels)))
    return _numerics.zero_left_out(losses, where)


@_class_axis.allow_split()
def top_k_hinge(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The hinge on the k-th largest score of the wrong classes.

    .. math:: \ell(s, y) = \bigl(1 + (s_{\setminus y})_{[k]} - s_y\bigr)_+

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        k: static set size, from 1 to L - 1.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `k` is not a static
            integer.
        ValueError: the shapes do not match, or `k` is outside [1, L - 1].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.5, 1.0], [3.0, 2.5, 1.0]])
        >>> print(losses.top_k_hinge(logits, jnp.array([1, 2]), k=1))
        [1.5 3. ]

    See Also:
        `calibrated_top_k_hinge`, `convex_top_k_hinge`, `noised_top_k_hinge`.

    Source: Lapin et al. (2015), "Top-k multiclass SVM"; thesis, equation 4.4.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    num_classes = _classes.count(scores, class_axis_name)
    k = _checks.rank(k, num_classes - 1, reason=REASON_WITHOUT_LABEL)
    return _numerics.zero_left_out(compute_top_k_hinge(scores, labels, k, class_axis_name), where)


def compute_top_k_hinge(
    scores: jax.Array, labels: jax.Array, k: int, class_axis_name: Hashable | None = None
) -> jax.Array:
    """`top_k_hinge` of checked arguments."""
    few, places = _few_classes(scores, labels, k, class_axis_name)
    threshold = compute_top_k_value(_numerics.without_label(few, places), k)
    losses = jax.nn.relu(1.0 + (threshold - _numerics.score_of_label(few, places)))
    return _numerics.nan_with_slopes_where_invalid(losses, scores, labels, class_axis_name)


@_class_axis.allow_split()
def convex_top_k_hinge(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The hinge on the mean of the k largest scores, a convex upper bound of `top_k_hinge`.

    .. math:: \ell(s, y) = \Bigl(\frac1k \sum_{i=1}^k (s + 1 - e_y)_{[i]} - s_y\Bigr)_+

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        k: static set size, from 1 to L.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `k` is not a static
            integer.
        ValueError: the shapes do not match, or `k` is outside [1, L].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        >>> print(losses.convex_top_k_hinge(logits, jnp.array([1, 2]), k=2))
        [1.  2.5]

    See Also:
        `top_k_hinge`, `calibrated_top_k_hinge`, `top_k_sum`.

    Source: Lapin et al. (2015), "Top-k multiclass SVM"; thesis, table 4.1.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    k = _checks.rank(k, _classes.count(scores, class_axis_name))
    losses = compute_convex_top_k_hinge(scores, labels, k, class_axis_name)
    return _numerics.zero_left_out(losses, where)


def compute_convex_top_k_hinge(
    scores: jax.Array, labels: jax.Array, k: int, class_axis_name: Hashable | None = None
) -> jax.Array:
    """`convex_top_k_hinge` of checked arguments."""
    few, places = _few_classes(scores, labels, k, class_axis_name)
    largest, classes = select_largest(jnp.where(_numerics.is_label(few, places), few - 1, few), k)
    # Identity: a shift of all scores shifts their mean. Hazard: at scores of 1e4 a sum of k scores
    # loses the digits of the margin. Differences to a label far below are equal. Choice: select
    # scores, and add their differences to s_y, which are exact for close scores.
    gaps = 1 + (largest - _numerics.score_of_label(few, places)[..., None])
    gaps = jnp.where(classes == places[..., None].astype(classes.dtype), 0, gaps)
    losses = jax.nn.relu(gaps.sum(axis=-1) / k)
    return _numerics.nan_with_slopes_where_invalid(losses, scores, labels, class_axis_name)


@_class_axis.allow_split()
def calibrated_top_k_hinge(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    where: ArrayLike | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The hinge on the (k+1)-th largest score of all classes, calibrated for the top-k error.

    .. math:: \ell(s, y) = \bigl(1 + s_{[k+1]} - s_y\bigr)_+

    Args:
        logits: floating-point scores, `[..., L]`; -inf masks a class. The label of a masked
            class costs about 1e30.
        labels: integer classes, `[...]`.
        k: static set size, from 1 to L - 1.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their logits and label are.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a logit is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: `logits` is not floating-point, `labels` is not integer, or `k` is not a static
            integer.
        ValueError: the shapes do not match, or `k` is outside [1, L - 1].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits = jnp.array([[3.0, 2.5, 1.0], [3.0, 2.5, 1.0]])
        >>> print(losses.calibrated_top_k_hinge(logits, jnp.array([0, 2]), k=1))
        [0.5 2.5]

    See Also:
        `top_k_hinge`, `noised_top_k_hinge`, `top_k_value`.

    Source: Yang and Koyejo (2020), "On the consistency of top-k surrogate losses"; thesis,
    equation 4.5.
    """
    scores, labels = _checks.logits_and_labels(logits, labels, where=where)
    num_classes = _classes.count(scores, class_axis_name)
    k = _checks.rank(k, num_classes - 1, reason=REASON_NEXT_RANK)
    losses = compute_calibrated_top_k_hinge(scores, labels, k, class_axis_name)
    return _numerics.zero_left_out(losses, where)


def compute_calibrated_top_k_hinge(
    scores: jax.Array, labels: jax.Array, k: int, class_axis_name: Hashable | None = None
) -> jax.Array:
    """`calibrated_top_k_hinge` of checked arguments."""
    few, places = _few_classes(scores, labels, k + 1, class_axis_name)
    gap = compute_top_k_value(few, k + 1) - _numerics.score_of_label(few, places)
    losses = jax.nn.relu(1.0 + gap)
    return _numerics.nan_with_slopes_where_invalid(losses, scores, labels, class_axis_name)


def _few_classes(
    scores: jax.Array, labels: jax.Array, size: int, class_axis_name: Hashable | None
) -> tuple[jax.Array, jax.Array]:
    """Finite scores and labels; if the classes are split, of the true class and `size` wrong ones.

    If the classes are split, the wrong classes with the largest scores are taken. They are in the
    order of the classes, so that equal scores rank as among all classes. A label outside [0, L)
    then becomes -1.
    """
    given, scores = scores, _numerics.finite_scores(scores)
    if class_axis_name is None:
        return scores, labels
    num_classes = _classes.count(scores, class_axis_name)
    others = _numerics.without_label(scores, labels, class_axis_name)
    _, classes = select_largest_of_split(others, min(size, num_classes - 1), class_axis_name)
    of_label = jnp.clip(labels, 0, num_classes - 1).astype(classes.dtype)[..., None]
    classes = in_ascending_order(jnp.concatenate([classes, of_label], axis=-1))
    scores = _numerics.nan_where_invalid_vectors(scores, given, class_axis_name)
    place = (classes < of_label).sum(axis=-1, dtype=classes.dtype)
    valid = (labels >= 0) & (labels < num_classes)
    return _classes.take(scores, classes, class_axis_name), jnp.where(valid, place, -1)
