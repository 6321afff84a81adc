"""The average-K loss: one head proposes candidate classes, and another head learns from them."""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import partial

import jax
import jax.numpy as jnp
from jax.nn import softplus
from jax.typing import ArrayLike

from topk_jax import _checks, _sharding
from topk_jax._checks import scalar
from topk_jax._example import Scores, batch_loss, batch_mean, two_heads
from topk_jax.losses._multilabel import negative_log_likelihood
from topk_jax.operators._top_k import select_largest, select_largest_of_split

__all__ = ["average_k", "average_k_candidates"]


@_sharding.allow_split(of="batch")
def average_k(
    logits: ArrayLike,
    proposal_logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: float,
    alpha: ArrayLike,
    axis_name: Hashable | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The cross-entropy of a proposal head plus the loss of a multi-label head on its candidates.

    .. math::
        \ell(Z, Z', y) = \frac1n \sum_i \bigl[ -\log\mathrm{softmax}_{y_i}(z'_i)
        - \log\sigma(z_{i, y_i}) \bigr]
        - \frac{\alpha}{m} \sum_{(i, j) \in C} \log\sigma(z_{ij})
        - \frac{\alpha}{n (L - 1) - m} \sum_{(i, j) \notin C,\, j \ne y_i} \log(1 - \sigma(z_{ij}))

    where C are the m candidates of `average_k_candidates`, without a gradient. An empty sum is 0. A
    candidate that `logits` masks with -inf adds nothing to the loss.

    Args:
        labels, class_axis_name: see `topk_jax.losses`.
        logits: floating-point scores Z of the multi-label head, `[..., L]`, which predicts.
        proposal_logits: floating-point scores Z' of the head that proposes candidates, `[..., L]`.
        k: static mean set size K, from 1 to L; see `average_k_candidates` for fractions.
        alpha: scalar weight of the candidates and of the other wrong classes, at least 0.
        axis_name: see `topk_jax.losses`. Under `pmap` and `shard_map(check_vma=False)`, average the
            gradients of shared parameters over the devices (`jax.lax.pmean`); those of values of
            one device are too large by the number of devices.

    Returns:
        The loss of the batch, a scalar.

    Example:
        >>> logits, labels = jnp.array([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), jnp.array([0, 2])
        >>> proposals = jnp.array([[3.0, 1.0, 0.0], [0.0, 2.0, 2.5]])
        >>> print(average_k(logits, proposals, labels, k=1.5, alpha=0.3).round(4))
        0.9309

    Source: thesis, equations 5.9, 5.10, 5.14 (whose last sum leaves the label out here) and 5.15.
    """
    heads = ("logits", logits), ("proposal_logits", proposal_logits)
    scores, proposals = two_heads(*heads, labels, class_axis_name)
    num_examples, num_candidates = _sizes(scores, "logits", k, axis_name)
    alpha = scalar(alpha, "alpha", scores.dtype, at_least=0)
    candidates = _candidates(proposals, num_candidates, axis_name)
    positive = scores.is_label
    # Each sum over the batch, divided by its number of terms, is a mean over the examples of
    # weighted sums over the classes. So the devices only need to add up one number each.
    num_others = num_examples * (scores.num_classes - 1) - num_candidates
    per_candidate = num_examples / max(num_candidates, 1)
    weights = jnp.where(candidates, per_candidate, num_examples / max(num_others, 1))
    weights = jnp.where(positive, jnp.ones_like(alpha), alpha * weights.astype(scores.dtype))
    costs = weights * negative_log_likelihood(scores.values, positive | candidates)
    costs = scores.sum(jnp.where(candidates & jnp.isneginf(scores.given), 0.0, costs))
    costs += softplus(proposals.rival(proposals.gaps()))
    return batch_loss(batch_mean(costs, axis_name), axis_name, scores, proposals)


@_sharding.allow_split(of="entries")
def average_k_candidates(
    proposal_logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: float,
    axis_name: Hashable | None = None,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The most likely wrong classes of a proposal head, K - 1 per example on average.

    .. math::
        C = \text{the } \lfloor (K - 1) n \rfloor \text{ pairs } (i, j),\ j \ne y_i,
        \text{ of largest } \mathrm{softmax}_j(z'_i)

    over the complete batch of n examples. Among equal probabilities, earlier examples come first,
    and within an example lower classes.

    Args:
        labels, axis_name, class_axis_name: see `topk_jax.losses`.
        proposal_logits: floating-point scores Z', `[..., L]`.
        k: static mean set size K, including the true label, from 1 to L; of a float, its shortest
            decimal counts.

    Returns:
        True at the candidates, `[..., L]`. A wrong example has none; others get more then.

    Example:
        >>> proposals = jnp.array([[9.0, 1.0, 0.0], [2.0, 2.5, 1.0]])
        >>> print(average_k_candidates(proposals, jnp.array([0, 1]), k=2))
        [[False False False]
         [ True False  True]]

    Source: thesis, equations 5.11 and 5.12.
    """
    proposals = Scores.of(proposal_logits, labels, None, class_axis_name, "proposal_logits")
    _, num_candidates = _sizes(proposals, "proposal_logits", k, axis_name)
    return _candidates(proposals, num_candidates, axis_name)


def _candidates(proposals: Scores, num_candidates: int, axis_name: Hashable | None) -> jax.Array:
    """A mask, [..., L], of the batch's candidates on this device."""
    name, labels = proposals.name, proposals.labels
    if num_candidates == 0:
        return jnp.zeros_like(proposals.values, jnp.bool_)
    values = jax.lax.stop_gradient(proposals.given)
    of_part = partial(_candidates_of_part, num_candidates, name)
    if name is not None or axis_name is not None:
        return of_part(axis_name, values, labels)
    return _sharding.select_from_batch(of_part, labels.ndim, values, labels)


def _candidates_of_part(
    num_candidates: int,
    class_axis_name: Hashable | None,
    axis_name: Hashable | None,
    proposals: jax.Array,
    labels: jax.Array,
) -> jax.Array:
    """The mask of this device's candidates among the examples and classes of all devices."""
    num_own = proposals.shape[-1]
    entries = _entries(proposals, labels, class_axis_name)
    values, indices = select_largest(entries, min(num_candidates, entries.size))
    if axis_name is not None or class_axis_name is not None:
        # The lists of the devices, sorted by values, then by examples, then by classes.
        sizes = (axis_name, labels.size), (class_axis_name, num_own)
        first_example, first_class = (
            0 if name is None else size * jax.lax.axis_index(name) for name, size in sizes
        )
        lists = -values, indices // num_own + first_example, indices % num_own + first_class
        for name, _ in sizes:
            if name is not None:
                lists = jax.lax.all_gather(lists, name, tiled=True)
        opposites, examples, classes = (
            part[:num_candidates] for part in jax.lax.sort(lists, num_keys=3)
        )
        rows, columns = examples - first_example, classes - first_class
        is_own = (rows >= 0) & (rows < labels.size) & (columns >= 0) & (columns < num_own)
        values, indices = -opposites, jnp.where(is_own, rows * num_own + columns, entries.size)
    marks = jnp.zeros(entries.shape, jnp.bool_).at[indices].set(values > -jnp.inf, mode="drop")
    return marks.reshape(proposals.shape)


def _entries(
    proposals: jax.Array, labels: jax.Array, class_axis_name: Hashable | None
) -> jax.Array:
    """The log-odds of the wrong classes of valid examples, and -inf for all others, [n L]."""
    scores = Scores.of(proposals, labels, class_axis_name=class_axis_name)
    log_odds = _log_odds(scores)
    # Equal probabilities may have log-odds of -0 and 0, which a selection would not take as equal.
    log_odds = jnp.where(log_odds == 0, 0, log_odds)
    # A masked class has log-odds of about FLOOR, which is above the -inf of excluded entries.
    excluded = scores.is_label | ~scores.is_valid[..., None]
    return jnp.where(excluded, -jnp.inf, log_odds).reshape(-1)


def _log_odds(scores: Scores) -> jax.Array:
    """The log-odds log(p / (1 - p)) of the softmax p, which have the same order as p.

    They neither underflow nor round to 1. For all but the first of the largest scores p is at most
    1/2; of this one, 1 - p would cancel.
    """
    first = select_largest_of_split(scores.values, 1, scores.name)[1][..., 0]
    as_label = Scores(scores.values, scores.values, first, scores.name)
    gaps = as_label.gaps()
    logs = scores.log_softmax()
    of_largest = -as_label.rival(gaps)[..., None]
    return jnp.where(gaps == 0, of_largest, logs - jnp.log1p(-jnp.exp(logs)))


def _sizes(scores: Scores, name: str, k: float, axis_name: Hashable | None) -> tuple[int, int]:
    """The numbers of examples n and of candidates floor((K - 1) n) of the complete batch."""
    size = _checks.mean_set_size(k, scores.num_classes)
    _checks.some_examples(scores.values, name)
    num_examples = scores.labels.size * _checks.axis_size(axis_name)
    return num_examples, math.floor((size - 1) * num_examples)
