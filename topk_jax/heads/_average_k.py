"""The average-K loss of two heads, over blocks of classes."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax._compilation import compiled
from topk_jax._sharding import unify
from topk_jax.heads import _softmax
from topk_jax.heads._blocks import Block, Layer, pull_back, scan_blocks
from topk_jax.heads._candidates import Candidates, keep_first, mark, merge, no_candidates
from topk_jax.heads._each_device import split_examples
from topk_jax.heads._head import Head, Scores, check_batch, size_of_block
from topk_jax.losses._average_k import count_on_device, divide_or_zero
from topk_jax.losses._multilabel import negative_log_likelihood

__all__ = ["average_k"]


@split_examples
def average_k(
    features: ArrayLike,
    head: Head,
    proposal_head: Head,
    labels: ArrayLike,
    *,
    k: float,
    alpha: ArrayLike,
    axis_name: Hashable | None = None,
    block_size: int | None = None,
) -> jax.Array:
    r"""The average-K loss of two heads, without the scores of all classes.

    .. math::
        \ell = \frac1n \sum_i \bigl[ -\log\mathrm{softmax}_{y_i}(z'_i)
        - \log\sigma(z_{i, y_i}) \bigr]
        - \frac{\alpha}{m} \sum_{(i, j) \in C} \log\sigma(z_{ij})
        - \frac{\alpha}{n (L - 1) - m} \sum_{(i, j) \notin C,\, j \ne y_i} \log(1 - \sigma(z_{ij}))

    This is `losses.average_k` of the scores z of `head` and z' of `proposal_head`, with the m
    candidates C of `losses.average_k_candidates`. Scores may be rounded differently, so that the
    choice may differ among candidates that are equally likely up to rounding. Only reverse mode is
    supported.

    Args:
        features: floating-point features of both heads, `[..., d]`; all axes but the last are the
            batch of n examples.
        head: a `LinearHead` or a `CosineHead` of L classes. Predict with this head.
        proposal_head: the head that proposes candidates, of L classes too.
        labels: integer classes, `[...]`.
        k: static mean set size K, from 1 to L; see `losses.average_k_candidates` for fractions.
        alpha: scalar weight of the candidates and of the other wrong classes, at least 0.
        axis_name: the axis of `pmap` or `shard_map` that the batch is split along into equal
            parts, as for `losses.average_k`.
        block_size: static number of classes whose scores are in memory at a time, at least 1. By
            default a block has 2^20 scores on the CPU, and 2^24 elsewhere.

    Returns:
        The loss of the batch, a scalar in float32 or float64; NaN if a score of either head is NaN
        or a label is outside [0, L) anywhere in the batch.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: an argument is outside its range, shapes do not match, the batch is empty, or
            `axis_name` is not bound.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import heads
        >>> features, labels = jnp.eye(2), jnp.array([0, 2])
        >>> head = heads.LinearHead(jnp.array([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]))
        >>> proposal_head = heads.LinearHead(jnp.array([[3.0, 1.0, 0.0], [0.0, 2.0, 2.5]]))
        >>> loss = heads.average_k(features, head, proposal_head, labels, k=1.5, alpha=0.3)
        >>> print(loss.round(4))
        0.9309

    See Also:
        `losses.average_k`.

    Source: Garcin (2023), thesis, equations 5.9, 5.10, 5.14 and 5.15.
    """
    scores, of_rows, _ = check_batch(features, head, labels)
    proposals, _, _ = check_batch(features, proposal_head, labels, name="proposal_head")
    num_classes = scores.num_classes
    if proposals.num_classes != num_classes:
        raise ValueError(
            f"proposal_head must have the {num_classes} classes of head, "
            f"got {proposals.num_classes}."
        )
    size = _checks.mean_set_size(k, num_classes)
    _checks.some_examples(of_rows, "features")
    num_examples = len(of_rows) * _checks.axis_size(axis_name)
    num_candidates = math.floor((size - 1) * num_examples)
    alpha = _checks.scalar(alpha, "alpha", scores.rows.dtype, at_least=0.0)
    block_size = size_of_block(block_size, scores)
    weights = (
        divide_or_zero(num_examples, num_candidates),
        divide_or_zero(num_examples, num_examples * (num_classes - 1) - num_candidates),
    )
    candidates = _find_candidates(proposals, of_rows, num_candidates, axis_name, block_size)
    of_labels, of_others = _costs_of_batch(scores, of_rows, candidates, weights, block_size)
    cost = _numerics.nan_where_invalid_labels(of_labels + alpha * of_others, of_rows, num_classes)
    examples = _softmax.compute_cross_entropy(proposals, of_rows, block_size)
    mean = _numerics.batch_mean(examples.astype(cost.dtype) + cost, axis_name)
    # An invalid example makes the gradients of all examples NaN.
    return _numerics.nan_unless(~jnp.isnan(mean), mean)


@compiled
def _find_candidates(
    proposals: Scores,
    labels: jax.Array,
    num_candidates: int,
    axis_name: Hashable | None,
    block_size: int,
) -> Candidates:
    """The batch's candidates on this device."""
    rows, layer, labels = unify(*jax.lax.stop_gradient((proposals.rows, proposals.layer)), labels)
    num_rows, num_classes = len(rows), proposals.num_classes
    size = min(num_candidates, num_rows * (num_classes - 1))
    lowest = jnp.full_like(rows[:, 0], -jnp.inf)

    def summarized(sums: tuple[jax.Array, jax.Array], block: Block) -> tuple[jax.Array, jax.Array]:
        top, others = sums
        first = block.scores.argmax(axis=1)[:, None]
        is_first = jnp.arange(block_size, dtype=first.dtype)[None] == first
        of_block = block.scores.max(axis=1)
        rest = jax.nn.logsumexp(jnp.where(is_first, -jnp.inf, block.scores), axis=1)
        others = jnp.logaddexp(jnp.logaddexp(others, rest), jnp.minimum(top, of_block))
        return jnp.maximum(top, of_block), others

    if size:
        loop = functools.partial(
            scan_blocks, unit=proposals.unit, block_size=block_size, rows=rows, layer=layer
        )
        (top, others), marks = loop(summarized, initial=(lowest, lowest))
        log_total = jnp.logaddexp(top, others)
        is_valid = (labels >= 0) & ~jnp.isnan(marks)

    def step(found: Candidates, block: Block) -> Candidates:
        # As in `losses.average_k_candidates`. A product may be rounded differently in this pass.
        log_probabilities = block.scores - log_total[:, None]
        log_odds = log_probabilities - jnp.log1p(-jnp.exp(log_probabilities))
        log_odds = jnp.where(block.scores >= top[:, None], (top - others)[:, None], log_odds)
        excluded = (block.classes[None] == labels[:, None]) | ~is_valid[:, None]
        excluded = excluded | jnp.isneginf(block.scores) | jnp.isnan(log_odds)
        entries = jnp.where(excluded, -jnp.inf, log_odds)
        return merge(found, entries, block.classes, num_classes)

    found = no_candidates(lowest.max(initial=-jnp.inf), size, num_rows, num_classes)
    if not size:
        return found
    found, _ = loop(step, initial=found)
    if axis_name is None:
        return found
    count = count_on_device(found.log_odds, num_candidates, axis_name)
    return keep_first(found, count, num_rows, num_classes)


@compiled
def _costs_of_batch(
    scores: Scores,
    labels: jax.Array,
    candidates: Candidates,
    weights: tuple[float, float],
    block_size: int,
) -> tuple[jax.Array, jax.Array]:
    """The costs of the true class and of the others, `[n]` both.

    `weights` has the weight of a candidate and the weight of another wrong class.
    """
    rows, layer, candidates, labels = unify(scores.rows, scores.layer, candidates, labels)
    return _costs(scores.unit, block_size, weights, rows, layer, labels, candidates)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _costs(
    unit: bool,
    block_size: int,
    weights: tuple[float, float],
    rows: jax.Array,
    layer: Layer,
    labels: jax.Array,
    candidates: Candidates,
) -> tuple[jax.Array, jax.Array]:
    """`_costs_of_batch` of arrays that vary over the same devices."""
    return _costs_forward(unit, block_size, weights, rows, layer, labels, candidates)[0]


def _costs_forward(
    unit: bool,
    block_size: int,
    weights: tuple[float, float],
    rows: jax.Array,
    layer: Layer,
    labels: jax.Array,
    candidates: Candidates,
) -> tuple[tuple[jax.Array, jax.Array], Any]:
    def step(sums: tuple[jax.Array, jax.Array], block: Block) -> tuple[jax.Array, jax.Array]:
        is_label, is_candidate = _kinds(block, labels, candidates)
        cost = negative_log_likelihood(block.scores, is_label | is_candidate)
        nothing = jnp.isneginf(block.scores) | (is_candidate & (block.scores <= _numerics.FLOOR))
        cost = jnp.where(nothing, 0.0, cost)
        others = jnp.where(is_label, 0.0, jnp.where(is_candidate, *weights) * cost)
        of_labels = jnp.where(is_label, cost, 0.0)
        return sums[0] + of_labels.sum(axis=1), sums[1] + others.sum(axis=1)

    zeros = jnp.zeros_like(rows[:, 0])
    (of_labels, of_others), marks = scan_blocks(step, unit, block_size, rows, layer, (zeros, zeros))
    return (of_labels + marks, of_others + marks), (rows, layer, labels, candidates)


def _costs_backward(
    unit: bool,
    block_size: int,
    weights: tuple[float, float],
    residuals: Any,
    cotangents: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, Layer, None, None]:
    rows, layer, labels, candidates = residuals

    def of_scores(block: Block) -> jax.Array:
        is_label, is_candidate = _kinds(block, labels, candidates)
        of_labels, of_others = (cotangent[:, None] for cotangent in cotangents)
        weight = jnp.where(is_label, of_labels, jnp.where(is_candidate, *weights) * of_others)
        slope = jnp.where(
            is_label | is_candidate, -jax.nn.sigmoid(-block.scores), jax.nn.sigmoid(block.scores)
        )
        return weight * slope

    return *pull_back(of_scores, unit, block_size, rows, layer), None, None


def _kinds(block: Block, labels: jax.Array, candidates: Candidates) -> tuple[jax.Array, jax.Array]:
    """Masks of the true classes and of the candidates of a block, `[n, B]` both."""
    is_label = block.classes[None] == labels[:, None]
    return is_label, mark(candidates, block.classes, len(labels))


_costs.defvjp(_costs_forward, _costs_backward)
