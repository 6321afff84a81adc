"""The top-K hinges of a head, over blocks of classes.

Each hinge depends only on the true class and on the k or k + 1 wrong classes with the largest
scores. These classes are selected over the blocks, and sorted by their index, so that equal scores
rank as among all classes. Their scores are then computed again, with a gradient, for the hinges of
`topk_jax.losses`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax._compilation import compiled
from topk_jax._entries import in_ascending_order
from topk_jax._sharding import unify
from topk_jax.heads._blocks import Block, scan_blocks, scores_of_classes
from topk_jax.heads._each_device import split_examples
from topk_jax.heads._head import Head, Scores, check_batch, size_of_block
from topk_jax.heads._selection import Largest, merge, select_nothing
from topk_jax.losses._hinge import (
    REASON_NEXT_RANK,
    REASON_WITHOUT_LABEL,
    compute_calibrated_top_k_hinge,
    compute_convex_top_k_hinge,
    compute_top_k_hinge,
)

__all__ = ["calibrated_top_k_hinge", "convex_top_k_hinge", "top_k_hinge"]


@split_examples
def top_k_hinge(
    features: ArrayLike,
    head: Head,
    labels: ArrayLike,
    *,
    k: int,
    where: ArrayLike | None = None,
    block_size: int | None = None,
) -> jax.Array:
    r"""The hinge on the k-th largest score of the wrong classes, without the scores of all classes.

    .. math:: \ell(x, y) = \bigl(1 + (s_{\setminus y}(x))_{[k]} - s_y(x)\bigr)_+

    This is `losses.top_k_hinge` of the scores. The backward pass reads and writes only the vectors
    of the true class and of the selected one. Only reverse mode is supported.

    Args:
        features: floating-point features x, `[..., d]`.
        head: a `LinearHead` or a `CosineHead` of L classes.
        labels: integer classes, `[...]`.
        k: static set size, from 1 to L - 1.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their features and label are.
        block_size: static number of classes whose scores are in memory at a time, at least 1; a
            smaller one than k + 1 counts as k + 1. By default a block has 2^20 scores on the CPU,
            and 2^24 elsewhere.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a score is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: the shapes do not match, or `k` or `block_size` is outside its range.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import heads
        >>> head = heads.LinearHead(jnp.eye(3))
        >>> features = jnp.array([[3.0, 2.5, 1.0], [3.0, 2.5, 1.0]])
        >>> print(heads.top_k_hinge(features, head, jnp.array([1, 2]), k=1))
        [1.5 3. ]

    See Also:
        `losses.top_k_hinge`.

    Source: Lapin et al. (2015), "Top-k multiclass SVM"; thesis, equation 4.4.
    """
    scores, labels, batch_shape = check_batch(features, head, labels, where=where)
    k = _checks.rank(k, scores.num_classes - 1, reason=REASON_WITHOUT_LABEL)
    reduced, positions = _reduced(scores, labels, k, block_size)
    losses = compute_top_k_hinge(reduced, positions, k).reshape(batch_shape)
    return _numerics.zero_left_out(losses, where)


@split_examples
def convex_top_k_hinge(
    features: ArrayLike,
    head: Head,
    labels: ArrayLike,
    *,
    k: int,
    where: ArrayLike | None = None,
    block_size: int | None = None,
) -> jax.Array:
    r"""The hinge on the mean of the k largest scores, without the scores of all classes.

    .. math:: \ell(x, y) = \Bigl(\frac1k \sum_{i=1}^k (s(x) + 1 - e_y)_{[i]} - s_y(x)\Bigr)_+

    This is `losses.convex_top_k_hinge` of the scores. The backward pass reads and writes only the
    vectors of the true class and of the k selected ones. Only reverse mode is supported.

    Args:
        features: floating-point features x, `[..., d]`.
        head: a `LinearHead` or a `CosineHead` of L classes.
        labels: integer classes, `[...]`.
        k: static set size, from 1 to L.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their features and label are.
        block_size: as for `top_k_hinge`.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a score is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: the shapes do not match, or `k` or `block_size` is outside its range.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import heads
        >>> head = heads.LinearHead(jnp.eye(3))
        >>> features = jnp.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        >>> print(heads.convex_top_k_hinge(features, head, jnp.array([1, 2]), k=2))
        [1.  2.5]

    See Also:
        `losses.convex_top_k_hinge`.

    Source: Lapin et al. (2015), "Top-k multiclass SVM"; thesis, table 4.1.
    """
    scores, labels, batch_shape = check_batch(features, head, labels, where=where)
    k = _checks.rank(k, scores.num_classes)
    reduced, positions = _reduced(scores, labels, k, block_size)
    losses = compute_convex_top_k_hinge(reduced, positions, k).reshape(batch_shape)
    return _numerics.zero_left_out(losses, where)


@split_examples
def calibrated_top_k_hinge(
    features: ArrayLike,
    head: Head,
    labels: ArrayLike,
    *,
    k: int,
    where: ArrayLike | None = None,
    block_size: int | None = None,
) -> jax.Array:
    r"""The hinge on the (k+1)-th largest score of all classes, without the scores of all classes.

    .. math:: \ell(x, y) = \bigl(1 + s_{[k+1]}(x) - s_y(x)\bigr)_+

    This is `losses.calibrated_top_k_hinge` of the scores. The backward pass reads and writes only
    the vectors of the true class and of the k + 1 selected ones. Only reverse mode is supported.

    Args:
        features: floating-point features x, `[..., d]`.
        head: a `LinearHead` or a `CosineHead` of L classes.
        labels: integer classes, `[...]`.
        k: static set size, from 1 to L - 1.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their features and label are.
        block_size: as for `top_k_hinge`; a smaller one than k + 2 counts as k + 2.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a score is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: the shapes do not match, or `k` or `block_size` is outside its range.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import heads
        >>> head = heads.LinearHead(jnp.eye(3))
        >>> features = jnp.array([[3.0, 2.5, 1.0], [3.0, 2.5, 1.0]])
        >>> print(heads.calibrated_top_k_hinge(features, head, jnp.array([0, 2]), k=1))
        [0.5 2.5]

    See Also:
        `losses.calibrated_top_k_hinge`.

    Source: Yang and Koyejo (2020), "On the consistency of top-k surrogate losses"; thesis,
    equation 4.5.
    """
    scores, labels, batch_shape = check_batch(features, head, labels, where=where)
    k = _checks.rank(k, scores.num_classes - 1, reason=REASON_NEXT_RANK)
    reduced, positions = _reduced(scores, labels, k + 1, block_size)
    losses = compute_calibrated_top_k_hinge(reduced, positions, k).reshape(batch_shape)
    return _numerics.zero_left_out(losses, where)


def _reduced(
    scores: Scores, labels: jax.Array, size: int, block_size: int | None
) -> tuple[jax.Array, jax.Array]:
    """The scores `[n, S]` of the true class and of the `size` largest wrong ones; its position.

    The position is -1 for a label outside [0, L).
    """
    size = min(size, scores.num_classes - 1)
    # A block has to have enough wrong classes.
    return _select(scores, labels, size, size_of_block(block_size, scores, at_least=size + 1))


@compiled
def _select(
    scores: Scores, labels: jax.Array, size: int, block_size: int
) -> tuple[jax.Array, jax.Array]:
    """`_reduced` with a checked size of blocks."""
    rows, layer, labels = unify(scores.rows, scores.layer, labels)

    def step(found: Largest, block: Block) -> Largest:
        # A head of one class has no wrong one.
        if not size:
            return found
        is_label = block.classes[None] == labels[:, None]
        return merge(found, jnp.where(is_label, -jnp.inf, block.scores), block.classes[0])

    found, marks = scan_blocks(
        step,
        scores.unit,
        block_size,
        *jax.lax.stop_gradient((rows, layer)),
        select_nothing(jnp.zeros_like(rows[:, 0]), size),
    )
    inside = jnp.maximum(labels, 0)[:, None]
    classes = in_ascending_order(jnp.concatenate([found.classes, inside], axis=1))
    selected = scores_of_classes(scores.unit, rows, layer, classes)
    selected = _numerics.nan_where_invalid_vectors(selected, marks[:, None])
    position = (classes < inside).sum(axis=1, dtype=jnp.int32)
    return selected, jnp.where(labels < 0, -1, position)
