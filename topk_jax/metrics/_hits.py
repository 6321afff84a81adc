"""Whether sets of classes have the true class, or several labels, and how large they are."""

from collections.abc import Hashable
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _compilation, _example
from topk_jax._example import Scores, logits_and_labels
from topk_jax._sums import Sum
from topk_jax.metrics._tally import Tally, weights_of

__all__ = [
    "example_f1",
    "expected_hits",
    "label_coverage",
    "label_ranks",
    "set_sizes",
    "tally_f1",
    "threshold_hits",
    "top_k_hits",
]


def label_ranks(
    scores: ArrayLike, labels: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""How many classes come before the true class when they are ordered by their scores.

    .. math:: r(s, y) = \#\{ j : s_j > s_y \text{, or } s_j = s_y \text{ and } j < y \}

    Args:
        scores, labels, class_axis_name: see `topk_jax.metrics`.

    Returns:
        Integers, `[...]`, from 0 to L - 1. Where a score is NaN or the label is outside [0, L), the
        rank is L, which is not less than any k.

    Example:
        >>> print(label_ranks(jnp.array([0.5, 0.25, 0.25]), jnp.array(2)))
        2

    Source: Garcin (2023), thesis, equation 2.13.
    """
    values, labels = logits_and_labels(
        scores, labels, name="scores", class_axis_name=class_axis_name
    )
    return _label_ranks(values, labels, class_axis_name)


def top_k_hits(
    scores: ArrayLike, labels: ArrayLike, *, k: int, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""Whether the true class is among the k classes with the largest scores.

    .. math:: h(s, y) = \mathbf 1[ r(s, y) < k ]

    with the r of `label_ranks`, which has the hits of all k at once.

    Args:
        scores, labels, class_axis_name: see `topk_jax.metrics`.
        k: static set size, from 1 to L. Ties go to the class with the lower index.

    Returns:
        Booleans, `[...]`. NaN scores and labels outside [0, L) are misses.

    Example:
        >>> scores = jnp.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
        >>> print(top_k_hits(scores, jnp.array([1, 2]), k=2))
        [ True False]

    Source: Garcin (2023), thesis, equation 2.13.
    """
    ranks = label_ranks(scores, labels, class_axis_name=class_axis_name)
    return ranks < _checks.rank(k, _classes.count(jnp.asarray(scores), class_axis_name))


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
        probabilities, labels, class_axis_name: see `topk_jax.metrics`.
        threshold: a real scalar, as for `sets.threshold_set`.

    Returns:
        Booleans, `[...]`. NaN probabilities, labels outside [0, L) and a NaN threshold are misses.

    Example:
        >>> probabilities = jnp.array([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]])
        >>> print(threshold_hits(probabilities, jnp.array([1, 2]), 0.25))
        [ True False]

    Source: Garcin (2023), thesis, equations 5.16 and 5.17.
    """
    found = Scores.of(probabilities, labels, None, class_axis_name, "probabilities")
    limit = _checks.real_array(threshold, "threshold", found.dtype, ())
    return (found.of_label(found.given) >= limit) & _has_rank(found)


def set_sizes(chosen: ArrayLike, *, class_axis_name: Hashable | None = None) -> jax.Array:
    """The number of classes in each set; `tally` gives their mean.

    Args:
        chosen, class_axis_name: see `topk_jax.metrics`.

    Returns:
        Integers, `[...]`.

    Example:
        >>> print(set_sizes(jnp.array([[True, True, False], [True, False, False]])))
        [2 1]

    Source: Garcin (2023), thesis, equation 2.1.
    """
    return _classes.sum_classes(_members_of(chosen, class_axis_name), class_axis_name)


def expected_hits(
    chosen: ArrayLike, plausibilities: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""The probability that a set has a label drawn from the votes of people for the example.

    .. math:: h(S, \lambda) = \sum_{y \in S} \lambda_y

    Args:
        chosen, class_axis_name: see `topk_jax.metrics`.
        plausibilities: the part of the votes that each class has, `[..., L]`: at least 0, with sum
            1 over the classes, up to 1e-4, or twice the eps of their type if that is more.

    Returns:
        Floats in [0, 1], `[...]`; NaN where traced plausibilities are not a distribution.

    Example:
        >>> chosen, votes = jnp.array([True, False, True]), jnp.array([0.5, 0.25, 0.25])
        >>> print(expected_hits(chosen, votes))
        0.75

    Source: Stutz et al. (2023), "Conformal prediction under ambiguous ground truth", section 2.
    """
    members = _members_of(chosen, class_axis_name)
    dtype = jnp.result_type(float)
    votes = _checks.distributions(
        plausibilities, "plausibilities", members.shape, dtype, class_axis_name
    )
    found = jnp.where(members | jnp.isnan(votes), votes, 0)
    # Rounding could make the sum of all votes more than 1.
    return jnp.minimum(_classes.sum_classes(found, class_axis_name), 1)


def example_f1(
    chosen: ArrayLike, targets: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""The F1 score of the set of each example: the harmonic mean of its precision and recall.

    .. math:: F_1(S, Y) = \frac{2 \, |S \cap Y|}{|S| + |Y|}

    Args:
        chosen, targets, class_axis_name: see `topk_jax.metrics`.

    Returns:
        Floats in [0, 1], `[...]`: 1 for an empty set without labels; scikit-learn has 0 by default.

    Example:
        >>> chosen = jnp.array([[True, True, False], [False, False, False]])
        >>> print(example_f1(chosen, jnp.array([[1, 1, 0], [0, 0, 1]])))
        [1. 0.]

    Source: Tsoumakas, Katakis and Vlahavas (2010), "Mining multi-label data", section 7.
    """
    hits, size, number, valid = _overlaps(chosen, targets, class_axis_name)
    return _share(2 * hits, size + number, valid)


def label_coverage(
    chosen: ArrayLike, targets: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""The part of the labels of each example that its set has: the recall.

    .. math:: c(S, Y) = \frac{|S \cap Y|}{|Y|}

    Args:
        chosen, targets, class_axis_name: see `topk_jax.metrics`.

    Returns:
        Floats in [0, 1], `[...]`: 1 without labels.

    Example:
        >>> chosen = jnp.array([[True, True, False], [False, True, False]])
        >>> print(label_coverage(chosen, jnp.array([[1, 1, 0], [0, 1, 1]])))
        [1.  0.5]

    Source: Angelopoulos et al. (2024), "Conformal risk control", section 3.
    """
    hits, _, number, valid = _overlaps(chosen, targets, class_axis_name)
    return _share(hits, number, valid)


def tally_f1(
    chosen: ArrayLike,
    targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> Tally:
    r"""The F1 score of each class, as sums that add up over batches and devices.

    .. math:: F_{1,c} = \frac{2 \, n(c \in S \cap Y)}{n(c \in S) + n(c \in Y)}

    Here n is the sum of the weights of such examples. `macro_mean` is the macro F1 score, of the
    classes that are in a set or a label; scikit-learn counts others as 0, unless `zero_division` is
    NaN. `mean` is the micro F1 score, of all pairs of an example and a class.

    Args:
        chosen, targets, where, weights: see `topk_jax.metrics`.

    Returns:
        A `Tally` with the numerator and the denominator of each class, `[L]`.

    Example:
        >>> chosen = jnp.array([[True, True, False], [False, True, False]])
        >>> scores = tally_f1(chosen, jnp.array([[1, 0, 0], [0, 1, 1]]))
        >>> print(scores.mean(), scores.macro_mean())
        0.6666667 0.5555556

    Source: Tsoumakas, Katakis and Vlahavas (2010), "Mining multi-label data", section 7.
    """
    members, labels, valid = _members_and_labels(chosen, targets, None)
    counts = jnp.where(valid, weights_of(valid.shape, where, weights), 0)
    batch = tuple(range(counts.ndim))

    def total(included: jax.Array) -> jax.Array:
        return jnp.where(included, counts[..., None], 0).sum(axis=batch)

    return Tally(Sum.of(2 * total(members & labels)), Sum.of(total(members) + total(labels)))


def _members_of(chosen: ArrayLike, class_axis_name: Hashable | None) -> jax.Array:
    """Sets, booleans [..., L], or raises."""
    _example.check_classes("chosen", chosen, None, class_axis_name)
    members = _checks.boolean_array(chosen, "chosen")
    if members.ndim == 0:
        raise ValueError(f"chosen must have an axis of classes, got shape {members.shape}.")
    return members


@partial(jax.jit, static_argnums=2)
def _label_ranks(
    values: jax.Array, labels: jax.Array, class_axis_name: Hashable | None
) -> jax.Array:
    # XLA may compute a score again for each use, with another rounding: before itself, then.
    values = _compilation.compute_once(values)
    scores = Scores(values, values, labels, class_axis_name)
    score = scores.of_label(values)[..., None]
    own_labels = _classes.localize(labels, values.shape[-1], class_axis_name)
    classes = jax.lax.broadcasted_iota(own_labels.dtype, values.shape, values.ndim - 1)
    tied_before = (values == score) & (classes < own_labels[..., None])
    ranks = scores.sum((values > score) | tied_before)
    return jnp.where(_has_rank(scores), ranks, scores.num_classes)


def _has_rank(scores: Scores) -> jax.Array:
    """Whether no score is NaN and the label is a class; a score may be infinite."""
    return scores.is_class & ~_classes.any_class(jnp.isnan(scores.given), scores.name)


def _members_and_labels(
    chosen: ArrayLike, targets: ArrayLike, class_axis_name: Hashable | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The booleans of both, [..., L], and whether all targets of an example are 0 or 1, [...]."""
    members = _members_of(chosen, class_axis_name)
    labels, valid = _example.multi_hot(targets, "targets", members.shape)
    return members, labels, ~_classes.any_class(~valid, class_axis_name)


def _overlaps(
    chosen: ArrayLike, targets: ArrayLike, class_axis_name: Hashable | None
) -> tuple[jax.Array, ...]:
    """How many classes are in both, in the set and among the labels; and what is valid, `[...]`."""
    members, labels, valid = _members_and_labels(chosen, targets, class_axis_name)
    masks = (members & labels, members, labels)
    return *(_classes.sum_classes(mask, class_axis_name) for mask in masks), valid


def _share(part: jax.Array, whole: jax.Array, valid: jax.Array) -> jax.Array:
    """The quotient of integers; 1 where both are 0, and NaN where the example is not valid."""
    share = part.astype(float) / jnp.maximum(whole, 1).astype(float)
    return _classes.nan_unless(valid, jnp.where(whole > 0, share, 1.0))
