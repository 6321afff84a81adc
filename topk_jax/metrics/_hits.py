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
    return _label_ranks(*_checked(scores, labels, class_axis_name), class_axis_name)


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
    values, known = _checked(scores, labels, class_axis_name)
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
    values, known = _checked(probabilities, labels, class_axis_name, "probabilities")
    limit = _checks.real_array(threshold, "threshold", values.dtype, ())
    scores = Scores(values, values, known, class_axis_name)
    return (scores.of_label(values) >= limit) & _has_rank(scores)


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
    return _classes.sum_classes(members_of(chosen, class_axis_name), class_axis_name)


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
    members = _checks.boolean_array(chosen, "chosen")
    if members.ndim == 0:
        raise ValueError(f"chosen must have an axis of classes, got shape {members.shape}.")
    return members


def _checked(
    scores: ArrayLike, labels: ArrayLike, class_axis_name: Hashable | None, name: str = "scores"
) -> tuple[jax.Array, jax.Array]:
    """Scores and labels that fit each other, or raises."""
    return _example.logits_and_labels(scores, labels, name=name, class_axis_name=class_axis_name)


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
    return jnp.where(_has_rank(scores), ranks, scores.num_classes)


def _has_rank(scores: Scores) -> jax.Array:
    """Whether no score is NaN and the label is a class; a score may be infinite."""
    return scores.is_class & ~_classes.any_class(jnp.isnan(scores.values), scores.name)
