"""The average-K loss: a head that proposes candidate classes and a head that learns from them."""

import math
from collections.abc import Hashable
from fractions import Fraction

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax.losses._multilabel import negative_log_likelihood
from topk_jax.losses._softmax import cross_entropy
from topk_jax.operators._top_k import largest

__all__ = ["average_k", "average_k_candidates"]


def average_k(
    logits: ArrayLike,
    proposal_logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: float,
    alpha: ArrayLike,
    axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The cross-entropy of a proposal head, and a multi-label head's loss on its candidates.

    .. math::
        \ell(Z, Z', y) = \frac1n \sum_i \bigl[ -\log\mathrm{softmax}_{y_i}(z'_i)
        - \log\sigma(z_{i, y_i}) \bigr]
        - \frac{\alpha}{m} \sum_{(i, j) \in C} \log\sigma(z_{ij})
        - \frac{\alpha}{n (L - 1) - m} \sum_{(i, j) \notin C,\, j \ne y_i} \log(1 - \sigma(z_{ij}))

    where C are the m candidates of `average_k_candidates`, m = (K - 1) n rounded down. At K = 1
    there are none and at K = L every class is one: a sum over nothing is 0. No gradient flows
    through the choice of the candidates. A candidate that `logits` masks out with -inf costs
    nothing.

    Args:
        logits: floating-point scores Z of the multi-label head, `[..., L]`; all axes but the last
            are the batch, n examples. This is the head to predict with.
        proposal_logits: floating-point scores Z' of the head that proposes candidates, `[..., L]`.
        labels: integer classes, `[...]`.
        k: static mean set size K, from 1 to L; see `average_k_candidates` for fractions.
        alpha: scalar weight of the candidates and of the other wrong classes, at least 0.
        axis_name: the axis of `pmap` or `shard_map` that the batch is split along into equal
            shares. Every device then returns the value of the whole batch. Under `pmap` and
            `shard_map(check_vma=False)` the mean over the devices (`jax.lax.pmean`) of
            `jax.grad`'s gradients with respect to shared parameters is the gradient of the whole
            batch; the gradient with respect to what one device alone holds, such as its logits, is
            the number of devices times that of the whole batch. Under `shard_map(check_vma=True)`
            both are those of the whole batch already.

    Returns:
        The loss of the batch, a scalar in float32 at least; NaN if a logit of either head is NaN or
        a label is outside [0, L) anywhere in the batch.

    Raises:
        TypeError: an argument is of the wrong kind or dtype.
        ValueError: an argument is outside its range, shapes do not match, the batch is empty, or
            `axis_name` is not bound.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> logits, labels = jnp.array([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), jnp.array([0, 2])
        >>> proposals = jnp.array([[3.0, 1.0, 0.0], [0.0, 2.0, 2.5]])
        >>> print(losses.average_k(logits, proposals, labels, k=1.5, alpha=0.3).round(4))
        0.9309

    Source: Garcin (2023), thesis, equations 5.9, 5.10, 5.14 and 5.15; the last sum of 5.14 leaves
    the true label out, as in 5.9.
    """
    scores, proposals, labels = _checks.two_heads(
        ("logits", logits), ("proposal_logits", proposal_logits), labels
    )
    num_classes = scores.shape[-1]
    num_examples, num_candidates = _sizes(scores, "logits", k, axis_name)
    alpha = _checks.scalar(alpha, "alpha", scores.dtype, at_least=0.0)
    candidates = _candidates(proposals, labels, num_candidates, axis_name)
    positive = _numerics.is_label(scores, labels)
    # Each of the sums over the batch divided by its number of terms is a mean over the examples of
    # weighted sums over the classes: one number a device is all that has to be added up for them.
    weights = jnp.where(
        candidates,
        _ratio(num_examples, num_candidates),
        _ratio(num_examples, num_examples * (num_classes - 1) - num_candidates),
    ).astype(scores.dtype)
    weights = jnp.where(positive, jnp.ones_like(alpha), alpha * weights)
    cost = weights * negative_log_likelihood(scores, positive | candidates)
    cost = jnp.where(candidates & jnp.isneginf(scores), 0.0, cost).sum(axis=-1)
    examples = cross_entropy(proposals, labels) + _numerics.nan_where_invalid(cost, scores, labels)
    return _numerics.batch_mean(examples, axis_name)


def average_k_candidates(
    proposal_logits: ArrayLike,
    labels: ArrayLike,
    *,
    k: float,
    axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The wrong classes that a proposal head finds likeliest, K - 1 an example on average.

    .. math::
        C = \text{the } \lfloor (K - 1) n \rfloor \text{ pairs } (i, j),\ j \ne y_i,
        \text{ of largest } \mathrm{softmax}_j(z'_i)

    over the whole batch, so that an ambiguous example may have many and a clear one none. Among
    equal probabilities those of earlier examples come first, and of lower classes within an
    example. Exactly so many are chosen, unless broken examples leave too few; K = 1 has none. The
    thesis takes K to be an integer; where (K - 1) n is not one it is rounded down, so that the sets
    never have more than K classes on average. The decimals of K are taken as they are written:
    K = 1.15 on 100 examples means 15 candidates, though the float is a little less than 1.15.

    Args:
        proposal_logits: floating-point scores Z', `[..., L]`; all axes but the last are the batch,
            n examples.
        labels: integer classes, `[...]`.
        k: static mean set size K, the true label included, from 1 to L.
        axis_name: the axis of `pmap` or `shard_map` that the batch is split along into equal
            shares, in the order of its devices. The result is then this device's share of the whole
            batch's candidates.

    Returns:
        True at the candidates, `[..., L]`. An example with a NaN logit or a label outside [0, L)
        has none: its share goes to the others while these have wrong classes left.

    Raises:
        TypeError: an argument is of the wrong kind or dtype.
        ValueError: an argument is outside its range, shapes do not match, the batch is empty, or
            `axis_name` is not bound.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> proposals = jnp.array([[9.0, 1.0, 0.0], [2.0, 2.5, 1.0]])
        >>> print(losses.average_k_candidates(proposals, jnp.array([0, 1]), k=2))
        [[False False False]
         [ True False  True]]

    Source: Garcin (2023), thesis, equations 5.11 and 5.12.
    """
    proposals, labels = _checks.logits_and_labels(proposal_logits, labels, name="proposal_logits")
    _, num_candidates = _sizes(proposals, "proposal_logits", k, axis_name)
    return _candidates(proposals, labels, num_candidates, axis_name)


def _candidates(
    proposals: jax.Array, labels: jax.Array, num_candidates: int, axis_name: Hashable | None
) -> jax.Array:
    """Marks the share [..., L] of the batch's candidates that this device holds.

    Cost: a partial selection of at most m = (K - 1) n of the device's entries.
    """
    num_classes = proposals.shape[-1]
    if num_candidates == 0:
        return jnp.zeros(proposals.shape, jnp.bool_)
    proposals = jax.lax.stop_gradient(_numerics.finite_scores(proposals))
    log_odds = _numerics.nan_where_invalid(
        _log_odds(proposals), proposals[..., None, :], labels[..., None]
    )
    # A masked class has log-odds of about FLOOR and comes before those struck out here.
    struck = _numerics.is_label(proposals, labels) | jnp.isnan(log_odds)
    entries = jnp.where(struck, -jnp.inf, log_odds).reshape(-1)
    # No device can have more than all m of the batch's largest, and none has more than its own
    # wrong classes. In descending order, equal ones in ascending order of index: what this device
    # contributes is the beginning of its list.
    size = min(num_candidates, entries.size - entries.size // num_classes)
    values, indices = largest(entries, size)
    if axis_name is None:
        chosen = values > -jnp.inf
    else:
        share = _share_of_device(values, num_candidates, axis_name)
        chosen = (jnp.arange(size) < share) & (values > -jnp.inf)
    marks = jnp.zeros(entries.shape, jnp.bool_).at[indices].set(chosen, unique_indices=True)
    return marks.reshape(proposals.shape)


def _log_odds(scores: jax.Array) -> jax.Array:
    """The log(p / (1 - p)) of the softmax p, which orders the classes as p does.

    Hazard: float32 probabilities of unlikely classes underflow to 0, and those of nearly certain
    ones round to 1 (their logarithms to 0), where all are equal. Choice: log-odds, which saturate
    at neither end; for the largest score the log-sum of the others is taken, as 1 - p would cancel,
    and for the rest p is at most 1/2. Cost: one more log-sum.
    """
    largest_score = scores.max(axis=-1, keepdims=True)
    first = scores.argmax(axis=-1, keepdims=True)
    is_first = jax.lax.broadcasted_iota(first.dtype, scores.shape, scores.ndim - 1) == first
    others = jax.nn.logsumexp(jnp.where(is_first, -jnp.inf, scores), axis=-1, keepdims=True)
    log_probabilities = jax.nn.log_softmax(scores, axis=-1)
    of_the_rest = log_probabilities - jnp.log1p(-jnp.exp(log_probabilities))
    return jnp.where(scores == largest_score, largest_score - others, of_the_rest)


def _share_of_device(values: jax.Array, num_candidates: int, axis_name: Hashable) -> jax.Array:
    """How many of the batch's m candidates are the first of this device's list of its largest.

    What is moved: each of N devices sends its list of min(m, own wrong classes) values, no indices
    and no other probability; at K = 5, 8 devices of 32 examples and 1,081 classes 8 * 1,024 floats
    (32 KiB) arrive at each, where the probabilities would be 8 * 32 * 1,081 (1.1 MiB).
    """
    lists = jax.lax.all_gather(values, axis_name)
    threshold = largest(lists.reshape(-1), num_candidates)[0][-1]
    above = (lists > threshold).sum(axis=-1)
    ties = (lists == threshold).sum(axis=-1)
    # Entries that equal the threshold go to earlier devices first, and a list cut off at m entries
    # has enough of them: m less the ones above it on this device, which is all it could be given.
    before = jnp.cumsum(ties) - ties
    given = jnp.clip(num_candidates - above.sum() - before, 0, ties)
    return (above + given)[jax.lax.axis_index(axis_name)]


def _sizes(logits: jax.Array, name: str, k: float, axis_name: Hashable | None) -> tuple[int, int]:
    """The numbers of examples n and of candidates floor((K - 1) n) of the whole batch."""
    num_classes = logits.shape[-1]
    size = _checks.mean_set_size(k, num_classes)
    _checks.some_examples(logits, name)
    num_examples = logits.size // num_classes * _checks.axis_size(axis_name)
    return num_examples, math.floor((size - 1) * num_examples)


def _ratio(numerator: int, denominator: int) -> float:
    """The quotient, or 0 for a mean over nothing."""
    return float(Fraction(numerator, denominator)) if denominator else 0.0
