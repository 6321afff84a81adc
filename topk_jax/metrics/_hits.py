"""Whether sets of classes have the true class, and how large they are."""

from collections.abc import Hashable
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _example, _selection
from topk_jax._example import Scores

__all__ = ["expected_hits", "label_ranks", "set_sizes", "threshold_hits", "top_k_hits"]


def label_ranks(
    scores: ArrayLike, labels: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""How many classes come before the true class when they are ordered by their scores.

    .. math::
        r(s, y) = \#\{ j : s_j > s_y \text{, or } s_j = s_y \text{ and } j < y \}

    Args:
        labels, class_axis_name: see `topk_jax.metrics`.
        scores: floating-point scores or probabilities, `[..., L]`.

    Returns:
        Integers, `[...]`, from 0 to L - 1. Where a score is NaN or the label is outside [0, L), the
        rank is L, which is not less than any k.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> scores = jnp.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
        >>> print(metrics.label_ranks(scores, jnp.array([0, 2])))
        [0 2]

    Source: Garcin (2023), thesis, equation 2.13.
    """
    _example.check_classes("scores", scores, labels, class_axis_name)
    values, known = _example.logits_and_labels(scores, labels, name="scores")
    return _label_ranks(values, known, class_axis_name)


def top_k_hits(
    scores: ArrayLike, labels: ArrayLike, *, k: int, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""Whether the true class is among the k classes with the largest scores.

    .. math::
        h(s, y) = \mathbf 1 \big[ \#\{ j : s_j > s_y \text{, or } s_j = s_y \text{ and } j < y \}
        < k \big]

    Ties go to the class with the lower index, as in `sets.top_k_set`. So constant scores do not hit
    every class. `label_ranks` has the hits of all k at once.

    Args:
        labels, class_axis_name: see `topk_jax.metrics`.
        scores: floating-point scores or probabilities, `[..., L]`.
        k: static set size, from 1 to L.

    Returns:
        Booleans, `[...]`. NaN scores and labels outside [0, L) are misses.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> scores = jnp.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
        >>> print(metrics.top_k_hits(scores, jnp.array([1, 2]), k=2))
        [ True False]

    Source: Garcin (2023), thesis, equation 2.13.
    """
    _example.check_classes("scores", scores, labels, class_axis_name)
    values, known = _example.logits_and_labels(scores, labels, name="scores")
    k = _checks.rank(k, _classes.count(values, class_axis_name))
    return _label_ranks(values, known, class_axis_name) < k


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
        labels, class_axis_name: see `topk_jax.metrics`.
        probabilities: floating-point, `[..., L]`.
        threshold: a real scalar, as for `sets.threshold_set`.

    Returns:
        Booleans, `[...]`. NaN probabilities, labels outside [0, L) and a NaN threshold are misses.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> probabilities = jnp.array([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]])
        >>> print(metrics.threshold_hits(probabilities, jnp.array([1, 2]), 0.25))
        [ True False]

    Source: Garcin (2023), thesis, equations 5.16 and 5.17.
    """
    _example.check_classes("probabilities", probabilities, labels, class_axis_name)
    values, known = _example.logits_and_labels(probabilities, labels, name="probabilities")
    limit = _checks.limits(threshold, "threshold", None, values.dtype)
    scores = Scores(values, values, known, class_axis_name)
    return (scores.of_label(values) >= limit) & _has_rank(scores)


def set_sizes(chosen: ArrayLike, *, class_axis_name: Hashable | None = None) -> jax.Array:
    """The number of classes in each set; `tally` gives their mean.

    Args:
        chosen, class_axis_name: see `topk_jax.metrics`.

    Returns:
        Integers, `[...]`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics
        >>> print(metrics.set_sizes(jnp.array([[True, True, False], [True, False, False]])))
        [2 1]

    Source: Garcin (2023), thesis, equation 2.1.
    """
    return _classes.sum_classes(members_of(chosen, class_axis_name), class_axis_name)


def expected_hits(
    chosen: ArrayLike, plausibilities: ArrayLike, *, class_axis_name: Hashable | None = None
) -> jax.Array:
    r"""The probability that a set has a label drawn from the votes of people for the example.

    .. math:: h(S, \lambda) = \sum_{y \in S} \lambda_y

    The mean over examples is the coverage of the sets. For the sets of `sets.top_k_set` it is the
    top-K accuracy against votes.

    Args:
        chosen, class_axis_name: see `topk_jax.metrics`.
        plausibilities: the part of the votes that each class has, `[..., L]`: at least 0, with sum
            1 over the classes, up to 1e-4, or twice the eps of their type if that is more.

    Returns:
        Floats in [0, 1], `[...]`, for `tally`; NaN where traced plausibilities are not a
        distribution.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import metrics, sets
        >>> votes = jnp.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
        >>> scores = jnp.array([[2.0, 0.0, 1.0], [0.0, 1.0, 2.0]])
        >>> hits = metrics.expected_hits(sets.top_k_set(scores, k=2), votes)
        >>> print(hits, metrics.tally(hits).mean())
        [0.75 1.  ] 0.875

    Source: Stutz et al. (2023), "Conformal prediction under ambiguous ground truth", section 2.
    """
    members = members_of(chosen, class_axis_name)
    dtype = jnp.result_type(float)
    votes = _checks.distributions(
        plausibilities, "plausibilities", members.shape, dtype, class_axis_name
    )
    found = jnp.where(members | jnp.isnan(votes), votes, 0)
    # Rounding could make the sum of all votes more than 1.
    return jnp.minimum(_classes.sum_classes(found, class_axis_name), 1)


def members_of(chosen: ArrayLike, class_axis_name: Hashable | None) -> jax.Array:
    """Sets, booleans [..., L], or raises."""
    _example.check_classes("chosen", chosen, None, class_axis_name)
    members = _example.boolean_array(chosen, "chosen")
    if members.ndim == 0:
        raise ValueError(f"chosen must have an axis of classes, got shape {members.shape}.")
    return members


@partial(jax.jit, static_argnums=2)
def _label_ranks(
    values: jax.Array, labels: jax.Array, class_axis_name: Hashable | None
) -> jax.Array:
    # XLA may compute a score again for each use, with another rounding: before itself, then.
    values = _selection.compute_once(values)
    scores = Scores(values, values, labels, class_axis_name)
    score = scores.of_label(values)[..., None]
    own_labels = _classes.localize(labels, values.shape[-1], class_axis_name)
    classes = jax.lax.broadcasted_iota(own_labels.dtype, values.shape, values.ndim - 1)
    tied_before = (values == score) & (classes < own_labels[..., None])
    ranks = scores.sum((values > score) | tied_before)
    return jnp.where(_has_rank(scores), ranks, _classes.count(values, class_axis_name))


def _has_rank(scores: Scores) -> jax.Array:
    """Whether no score is NaN and the label is a class; a score may be infinite."""
    is_class = (scores.labels >= 0) & (scores.labels < _classes.count(scores.values, scores.name))
    return is_class & ~_classes.any_class(jnp.isnan(scores.values), scores.name)
