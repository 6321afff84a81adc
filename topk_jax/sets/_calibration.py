"""The calibration examples of quantiles: the scores of their labels, by class or another group."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics, _sharding
from topk_jax._entries import add_by_group


class Calibration(NamedTuple):
    """The scores of the labels, [n], the labels, [n], and whether all of them are valid."""

    scores: jax.Array
    labels: jax.Array
    valid: jax.Array


class Groups(NamedTuple):
    """Scores by group: in ascending order within each, [n], and each group's start and size."""

    ascending: jax.Array
    starts: jax.Array
    sizes: jax.Array


def calibration_of(
    scores: ArrayLike, labels: ArrayLike, num_classes: int | None, *, name: str = "scores"
) -> Calibration:
    """The scores of the labels, from the scores of all classes or of the labels, or raises."""
    values, labels, is_of_labels = _scores_and_labels(scores, labels, name)
    if is_of_labels:
        of_labels, known = values, num_classes
    else:
        of_labels, known = _numerics.score_of_label(values, labels), values.shape[-1]
    largest = jnp.iinfo(labels.dtype).max if known is None else known - 1
    valid = ~jnp.isnan(values).any() & ((labels >= 0) & (labels <= largest)).all()
    # Quantiles need all of them in one order: a score and a label per example are sent to all
    # devices, and not the scores of all classes.
    of_labels, labels = _sharding.gather(of_labels), _sharding.gather(labels)
    return Calibration(of_labels.reshape(-1), labels.reshape(-1), valid)


def calibration_by_class(
    scores: ArrayLike, labels: ArrayLike, num_classes: int | None
) -> tuple[Calibration, int]:
    """The scores of the labels, and the number of classes, or raises.

    The number has to be given with scores of the labels alone.
    """
    values, labels, is_of_labels = _scores_and_labels(scores, labels, "scores")
    if num_classes is not None:
        num_classes = _checks.static_integer(num_classes, "num_classes", minimum=1)
    if is_of_labels:
        if num_classes is None:
            raise ValueError(
                "num_classes must be an integer for only the scores of the labels, got None."
            )
    elif num_classes not in (None, values.shape[-1]):
        raise ValueError(
            f"num_classes must be {values.shape[-1]} for scores of shape {values.shape}, got "
            f"{num_classes}."
        )
    else:
        num_classes = values.shape[-1]
    return calibration_of(values, labels, num_classes), num_classes


def _scores_and_labels(
    scores: ArrayLike, labels: ArrayLike, name: str
) -> tuple[jax.Array, jax.Array, bool]:
    """The scores, the labels, and whether the scores are of the labels alone, or raises.

    Hazard: one-hot labels have the shape of the scores of all classes, and would be labels of n L
    examples. Choice: scores of the labels alone have one axis, as their labels do. Cost: scores of
    more axes have to be flattened.
    """
    values = _checks.floating_array(scores, name)
    is_of_labels = values.ndim == 1 and np.shape(labels) != ()
    if is_of_labels:
        labels = _checks.integer_array(labels, "labels", values.shape, of=(name, values.shape))
    else:
        values, labels = _checks.logits_and_labels(
            scores,
            labels,
            name=name,
            hint="sets.vote_quantile takes one-hot and soft labels; scores of the labels alone, "
            "and their labels, have to be vectors",
        )
    _checks.some_examples(values, name)
    return values, labels, is_of_labels


def group_scores(calibration: Calibration, groups: jax.Array, num_groups: int) -> Groups:
    """The scores by group [n]; scores of groups from `num_groups` up are at the end.

    No group may be negative. Negative labels, which are not valid, give results without a meaning.
    """
    sizes = add_by_group(num_groups, groups, 1)
    starts = jnp.cumsum(sizes) - sizes
    _, ascending = jax.lax.sort((groups, calibration.scores), num_keys=2)
    return Groups(ascending, starts, sizes)


def value_of_rank(groups: Groups, ranks: jax.Array) -> jax.Array:
    """The `ranks`-th smallest score of each group, or infinity if it has fewer."""
    places = jnp.clip(groups.starts + ranks - 1, 0, groups.ascending.size - 1)
    return jnp.where(ranks > groups.sizes, jnp.inf, groups.ascending[places])


def covered_of_each_size(num_examples: int, error: Fraction) -> np.ndarray:
    """How many of m examples a quantile must cover, ceil((m + 1)(1 - error)), for m from 0 to n."""
    numerator, denominator = error.numerator, error.denominator
    covered = (m + 1 - (m + 1) * numerator // denominator for m in range(num_examples + 1))
    return np.fromiter(covered, int, num_examples + 1)
