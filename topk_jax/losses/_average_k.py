"""The average-K loss: one head proposes candidate classes, and another head learns from them."""

from __future__ import annotations

import math
from collections.abc import Hashable
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
from jax.nn import softplus
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _classes, _platforms, _search, _sharding
from topk_jax._example import Scores, batch_loss, batch_mean, logits_and_labels, scalar
from topk_jax.losses._multilabel import negative_log_likelihood
from topk_jax.operators._top_k import select_kth, select_largest, select_largest_of_split

__all__ = ["average_k", "average_k_candidates"]


@_class_axis.allow_split(of="batch")
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

    where C are the m candidates of `average_k_candidates`, with m = (K - 1) n rounded down. At K =
    1 there are no candidates, and at K = L every class is a candidate. An empty sum is 0. No
    gradient flows through the choice of the candidates. A candidate that `logits` masks with -inf
    adds nothing to the loss.

    Each device gets the most likely candidates of the other devices, at most (K - 1) n.

    Args:
        labels, class_axis_name: see `topk_jax.losses`.
        logits: floating-point scores Z of the multi-label head, `[..., L]`, which predicts.
        proposal_logits: floating-point scores Z' of the head that proposes candidates, `[..., L]`.
        k: static mean set size K, from 1 to L; see `average_k_candidates` for fractions.
        alpha: scalar weight of the candidates and of the other wrong classes, at least 0.
        axis_name: the axis of `pmap` or `shard_map` that the batch is split along into equal parts.
            Every device then returns the loss of the complete batch. Under `pmap` and
            `shard_map(check_vma=False)`, average the gradients of shared parameters over the
            devices (`jax.lax.pmean`) to get the gradient of the complete batch. Gradients with
            respect to values of one device, such as its logits, are too large by a factor of the
            number of devices. Under `shard_map(check_vma=True)`, both are already the gradients of
            the complete batch.

    Returns:
        The loss of the batch, a scalar.

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
    first, second, labels = _checks.two_heads(
        ("logits", logits), ("proposal_logits", proposal_logits), labels
    )
    scores, proposals = (
        Scores.of(head, labels, class_axis_name=class_axis_name) for head in (first, second)
    )
    num_examples, num_candidates = _sizes(scores, "logits", k, axis_name)
    alpha = scalar(alpha, "alpha", scores.dtype, at_least=0)
    candidates = _candidates(proposals, num_candidates, axis_name)
    positive = scores.is_label
    # Each sum over the batch, divided by its number of terms, is a mean over the examples of
    # weighted sums over the classes. So the devices only need to add up one number each.
    num_others = num_examples * (scores.num_classes - 1) - num_candidates
    weights = jnp.where(
        candidates,
        _divide_or_zero(num_examples, num_candidates),
        _divide_or_zero(num_examples, num_others),
    ).astype(scores.dtype)
    weights = jnp.where(positive, jnp.ones_like(alpha), alpha * weights)
    costs = weights * negative_log_likelihood(scores.values, positive | candidates)
    costs = scores.sum(jnp.where(candidates & jnp.isneginf(scores.given), 0.0, costs))
    costs += softplus(proposals.rival(proposals.gaps()))
    return batch_loss(batch_mean(costs, axis_name), axis_name, scores, proposals)


@_class_axis.allow_split(of="entries")
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

    over the complete batch of n examples. So an ambiguous example may have many candidates, and a
    clear example may have none. Among equal probabilities, earlier examples come first, and within
    an example lower classes. K is interpreted as its shortest decimal: K = 1.15 on 100 examples
    gives 15 candidates, although the float is a little less than 1.15.

    Args:
        labels, class_axis_name: see `topk_jax.losses`.
        proposal_logits: floating-point scores Z', `[..., L]`.
        k: static mean set size K, including the true label, from 1 to L.
        axis_name: the axis of `pmap` or `shard_map` that the batch is split along into equal parts,
            in the order of its devices. The result is then this device's part of the candidates of
            the complete batch.

    Returns:
        True at the candidates, `[..., L]`. An example with a NaN logit or a label outside [0, L)
        has no candidates. Other examples then get more candidates, as long as they have wrong
        classes left.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import losses
        >>> proposals = jnp.array([[9.0, 1.0, 0.0], [2.0, 2.5, 1.0]])
        >>> print(losses.average_k_candidates(proposals, jnp.array([0, 1]), k=2))
        [[False False False]
         [ True False  True]]

    Source: Garcin (2023), thesis, equations 5.11 and 5.12.
    """
    given, labels = logits_and_labels(proposal_logits, labels, name="proposal_logits")
    proposals = Scores.of(given, labels, class_axis_name=class_axis_name)
    _, num_candidates = _sizes(proposals, "proposal_logits", k, axis_name)
    return _candidates(proposals, num_candidates, axis_name)


def _candidates(proposals: Scores, num_candidates: int, axis_name: Hashable | None) -> jax.Array:
    """A mask, [..., L], of the batch's candidates on this device."""
    name, labels = proposals.name, proposals.labels
    if num_candidates == 0:
        return jnp.zeros_like(proposals.values, jnp.bool_)
    values = jax.lax.stop_gradient(proposals.given)
    if name is not None:
        return _candidates_of_classes(num_candidates, axis_name, name, values, labels)
    if axis_name is not None:
        return _candidates_of_part(num_candidates, axis_name, values, labels)
    of_part = partial(_candidates_of_part, num_candidates)
    return _sharding.select_from_batch(of_part, labels.ndim, values, labels)


def _candidates_of_part(
    num_candidates: int, axis_name: Hashable | None, proposals: jax.Array, labels: jax.Array
) -> jax.Array:
    """The mask of this device's candidates among the examples of all devices on a mapped axis.

    Cost: a partial selection of at most m = (K - 1) n of the device's entries.
    """
    num_classes = proposals.shape[-1]
    entries = _entries(proposals, labels, None)
    # No device has more than all m candidates or more than its own wrong classes.
    size = min(num_candidates, entries.size - entries.size // num_classes)
    if _checks.axis_size(axis_name) == 1:
        marks = _mark_largest(entries, size)
    else:
        # The list is in descending order, with equal entries in ascending order of their index. So
        # the candidates of this device come first in its list.
        values, indices = select_largest(entries, size)
        count = _count_on_device(values, num_candidates, axis_name)
        marks = _mark(entries, indices, jnp.arange(size) < count)
    return (marks & (entries > -jnp.inf)).reshape(proposals.shape)


def _mark_largest(entries: jax.Array, size: int) -> jax.Array:
    """Whether each of the entries [N] is one of the largest; equal ones rank by their index.

    An accelerator sorts all entries to select many. So it searches for the last one, with one pass
    for 4 bits of a float or of an index.
    """

    def by_search(entries: jax.Array) -> jax.Array:
        index = _search.kth_of_rows(entries, size)
        last = entries[index]
        not_after = jnp.arange(entries.size, dtype=index.dtype) <= index
        return (entries > last) | ((entries == last) & not_after)

    def by_selection(entries: jax.Array) -> jax.Array:
        _, indices = select_largest(entries, size)
        return _mark(entries, indices, jnp.ones(size, jnp.bool_))

    return _platforms.choose(entries, cpu=by_selection, default=by_search)


def _mark(entries: jax.Array, indices: jax.Array, marks: jax.Array) -> jax.Array:
    return jnp.zeros(entries.shape, jnp.bool_).at[indices].set(marks, unique_indices=True)


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


def _candidates_of_classes(
    num_candidates: int,
    axis_name: Hashable | None,
    class_axis_name: Hashable,
    proposals: jax.Array,
    labels: jax.Array,
) -> jax.Array:
    """Like `_candidates_of_part`, but the classes are split, too.

    Communication: each device sends at most m log-odds, and the example and the class of each,
    because the devices are not in the order of the entries.
    """
    num_own = proposals.shape[-1]
    entries = _entries(proposals, labels, class_axis_name)
    size = min(num_candidates, entries.size)
    values, indices = select_largest(entries, size)
    examples, classes = indices // num_own, indices % num_own
    classes = classes + num_own * jax.lax.axis_index(class_axis_name).astype(classes.dtype)
    names: tuple[Hashable, ...] = (class_axis_name,)
    if axis_name is not None:
        batch = jax.lax.axis_index(axis_name).astype(examples.dtype)
        examples = examples + labels.size * batch
        names = (axis_name, class_axis_name)
    own = (-values, examples, classes)
    everyone = own
    for name in names:
        everyone = jax.lax.all_gather(everyone, name, tiled=True)
    last = [part[num_candidates - 1] for part in jax.lax.sort(everyone, num_keys=3)]
    chosen = _not_after(own, last) & (values > -jnp.inf)
    return _mark(entries, indices, chosen).reshape(proposals.shape)


def _not_after(entries: tuple[jax.Array, ...], last: list[jax.Array]) -> jax.Array:
    """Which entries are not after the last one, in lexicographic order."""
    found = jnp.ones_like(entries[0], jnp.bool_)
    for part, bound in zip(reversed(entries), reversed(last), strict=True):
        found = (part < bound) | ((part == bound) & found)
    return found


def _log_odds(scores: Scores) -> jax.Array:
    """The log-odds log(p / (1 - p)) of the softmax p, which have the same order as p.

    Unlike probabilities, they neither underflow nor round to 1. The largest score is compared with
    the log-sum-exp of the others, because 1 - p would cancel; for all others p is at most 1/2.
    """
    values, name = scores.values, scores.name
    largest = _classes.max_classes(values, name, keepdims=True)
    if name is None:
        first = values.argmax(axis=-1, keepdims=True)
    else:
        first = select_largest_of_split(values, 1, name)[1]
        first = _classes.localize(first, values.shape[-1], name)
    is_first = jax.lax.broadcasted_iota(first.dtype, values.shape, values.ndim - 1) == first
    others = jnp.where(is_first, -jnp.inf, values)
    others = _classes.log_sum_exp(others, name, keepdims=True)
    logs = scores.log_softmax()
    return jnp.where(values == largest, largest - others, logs - jnp.log1p(-jnp.exp(logs)))


def _count_on_device(values: jax.Array, num_candidates: int, axis_name: Hashable) -> jax.Array:
    """The number of the batch's m candidates that are on this device.

    Each device sends min(m, own wrong classes) values, without indices.
    """
    lists = jax.lax.all_gather(values, axis_name)
    (threshold,) = select_kth(lists.reshape(-1), num_candidates)[0]
    above = (lists > threshold).sum(axis=-1)
    ties = (lists == threshold).sum(axis=-1)
    # Entries that equal the threshold are chosen from earlier devices first. A list that is cut off
    # at m entries still has enough of them: m minus the entries above the threshold on this device.
    before = jnp.cumsum(ties) - ties
    given = jnp.clip(num_candidates - above.sum() - before, 0, ties)
    return (above + given)[jax.lax.axis_index(axis_name)]


def _sizes(scores: Scores, name: str, k: float, axis_name: Hashable | None) -> tuple[int, int]:
    """The numbers of examples n and of candidates floor((K - 1) n) of the complete batch."""
    size = _checks.mean_set_size(k, scores.num_classes)
    _checks.some_examples(scores.values, name)
    num_examples = scores.labels.size * _checks.axis_size(axis_name)
    return num_examples, math.floor((size - 1) * num_examples)


def _divide_or_zero(numerator: int, denominator: int) -> float:
    """The quotient, or 0 for a mean over nothing."""
    return float(Fraction(numerator, denominator)) if denominator else 0.0
