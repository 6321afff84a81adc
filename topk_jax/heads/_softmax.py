"""The cross-entropy of a head, over blocks of classes."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _numerics
from topk_jax._compilation import compiled
from topk_jax._sharding import unify
from topk_jax.heads._blocks import (
    Block,
    Layer,
    pull_back,
    scan_blocks,
    scores_of_classes,
)
from topk_jax.heads._each_device import split_examples
from topk_jax.heads._head import Head, Scores, check_batch, size_of_block

__all__ = ["cross_entropy"]


@split_examples
def cross_entropy(
    features: ArrayLike,
    head: Head,
    labels: ArrayLike,
    *,
    where: ArrayLike | None = None,
    block_size: int | None = None,
) -> jax.Array:
    r"""The cross-entropy of the softmax of a head's scores, without the scores of all classes.

    .. math:: \ell(x, y) = \log \sum_j e^{s_j(x)} - s_y(x)

    This is `losses.cross_entropy` of the scores. The forward pass stores two numbers per example,
    and the backward pass computes the scores again. Only reverse mode is supported.

    Args:
        features: floating-point features x, `[..., d]`.
        head: a `LinearHead` or a `CosineHead` of L classes.
        labels: integer classes, `[...]`.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their features and label are.
        block_size: static number of classes whose scores are in memory at a time, at least 1. By
            default a block has 2^20 scores on the CPU, and 2^24 elsewhere.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a score is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: the shapes do not match, or `block_size` is less than 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import heads
        >>> features, labels = jnp.array([[1.0, 2.0]]), jnp.array([1])
        >>> head = heads.LinearHead(jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
        >>> print(heads.cross_entropy(features, head, labels, block_size=2).round(4))
        [0.4076]

    See Also:
        `losses.cross_entropy`.

    Source: Wijmans et al. (2024), "Cut your losses in large-vocabulary language models".
    """
    scores, labels, batch_shape = check_batch(features, head, labels, where=where)
    losses = compute_cross_entropy(scores, labels, size_of_block(block_size, scores))
    losses = losses.reshape(batch_shape)
    return _numerics.zero_left_out(losses, where)


@compiled
def compute_cross_entropy(scores: Scores, labels: jax.Array, block_size: int) -> jax.Array:
    """The cross-entropy `[n]` of checked scores."""
    rows, layer, labels = unify(scores.rows, scores.layer, labels)
    losses = jax.nn.softplus(_rival(scores.unit, block_size, rows, layer, labels))
    return _numerics.nan_where_invalid_labels(losses, labels, scores.num_classes)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _rival(
    unit: bool, block_size: int, rows: jax.Array, layer: Layer, labels: jax.Array
) -> jax.Array:
    """The log-odds against the true class, `[n]`: log sum_{j != y} e^(s_j - s_y)."""
    return _rival_forward(unit, block_size, rows, layer, labels)[0]


def _rival_forward(
    unit: bool, block_size: int, rows: jax.Array, layer: Layer, labels: jax.Array
) -> tuple[jax.Array, Any]:
    inside = jnp.maximum(labels, 0)[:, None]
    score = _numerics.finite_scores(scores_of_classes(unit, rows, layer, inside)[:, 0])

    def step(sums: tuple[jax.Array, jax.Array], block: Block) -> tuple[jax.Array, jax.Array]:
        highest, total = sums
        gaps = _gaps(block, labels, score)
        higher = jnp.maximum(highest, gaps.max(axis=1))
        terms = jnp.exp(gaps - higher[:, None]).sum(axis=1)
        return higher, total * jnp.exp(highest - higher) + terms

    # As in `losses.cross_entropy`, the true class has a finite score below all others here.
    initial = (jnp.full_like(score, _numerics.FLOOR), jnp.ones_like(score))
    (highest, total), marks = scan_blocks(step, unit, block_size, rows, layer, initial)
    # Not their sum: if the true class has a score of -1e30, rounding would lose the logarithm.
    residuals = (rows, layer, labels, score, highest, total)
    return highest + jnp.log(total) + marks, residuals


def _rival_backward(
    unit: bool, block_size: int, residuals: Any, cotangent: jax.Array
) -> tuple[jax.Array, Layer, None]:
    rows, layer, labels, score, highest, total = residuals

    def of_scores(block: Block) -> jax.Array:
        shares = jnp.exp(_gaps(block, labels, score) - highest[:, None]) / total[:, None]
        is_label = block.classes[None] == labels[:, None]
        return cotangent[:, None] * jnp.where(is_label, -1.0, shares)

    return *pull_back(of_scores, unit, block_size, rows, layer), None


def _gaps(block: Block, labels: jax.Array, score: jax.Array) -> jax.Array:
    """The scores of a block minus the true class's score, `[n, B]`; -inf at the true class."""
    is_label = block.classes[None] == labels[:, None]
    return jnp.where(is_label, -jnp.inf, block.scores - score[:, None])


_rival.defvjp(_rival_forward, _rival_backward)
