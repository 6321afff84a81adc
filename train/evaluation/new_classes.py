"""Limits of outlier scores for "none of these", and what answers with it are worth."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from topk_jax import metrics, sets
from train.evaluation.summaries import Sets
from train.foundation.errors import UserError


@dataclass(frozen=True)
class NewClassLimits:
    """Where sets say "none of these".

    Attributes:
        known_to: the largest outlier score of an example that may be of a known class. Above it,
            the answer is "none of these" alone.
        new_from: the smallest score of an example whose classes have "none of these" beside them.
        num_labels: the number of labels that it is calibrated on.
        num_seen_once: how many of these are the only label of their class.
    """

    known_to: float
    new_from: float
    num_labels: float
    num_seen_once: float

    @property
    def largest_p_value(self) -> float:
        """The p-value of a new class for an example whose score is above all others."""
        return (self.num_seen_once + 1) / (self.num_labels + 1)


def limits(
    outliers: np.ndarray, labels: np.ndarray, error: float, what: str = "examples"
) -> NewClassLimits:
    """The limits from examples of known classes.

    Args:
        outliers: their outlier scores, float32 [n].
        labels: their classes, [n].
        error: one half is for known classes that are called new, the other for new ones that are
            not. The limits are read as what examples say that are exchangeable with new ones.
        what: what messages call an example, in the plural.

    Raises:
        UserError: so few examples can only promise it by "none of these" for all.
    """
    half = Decimal(repr(error)) / 2
    number, fewest = len(labels), math.ceil(1 / half - 1)
    if number < fewest:
        raise UserError(
            f"'none of these' with an error of {error:g} needs at least 2 / {error:g} - 1 = "
            f"{fewest} {what} to calibrate on; there are {number}"
        )
    part = float(half)
    once = np.bincount(labels)[labels] == 1
    # As for `thresholds.conformal_threshold`: the scores are of a single class.
    known_to = sets.conformal_quantile(outliers, np.zeros(number, np.int32), error=part)
    new_from = sets.new_class_threshold(outliers, once, error=part)
    return NewClassLimits(float(known_to), float(new_from), float(number), float(once.sum()))


def with_new(members: Any, outliers: Any, found: NewClassLimits) -> Any:
    """The sets [n, L] with a last column for "none of these", [n, L + 1]."""
    return sets.open_set(members, outliers, known_to=found.known_to, new_from=found.new_from)


def rated_scores(outliers: np.ndarray, ranks: np.ndarray, is_new: np.ndarray) -> dict[str, float]:
    """How well outlier scores tell examples of new classes from others, whatever their limits."""
    return {
        "auroc": float(metrics.auroc(outliers, is_new)),
        "oscr_area": float(metrics.oscr_area(-outliers, ranks == 0, is_new)),
    }


def rated_sets(
    found: Sets, outliers: np.ndarray, limits: NewClassLimits, is_new: np.ndarray
) -> dict[str, Any]:
    """The quality of sets with "none of these".

    Args:
        found: the sets of the classes alone.
        outliers: the outlier scores, [n].
        limits: the limits of these.
        is_new: whether an example is of a class that is not known, [n].
    """
    is_alone = outliers > limits.known_to
    says_new = is_alone | (outliers >= limits.new_from)
    shares = metrics.open_set_accuracy(found.hits & ~is_alone, says_new, is_new)
    alone = {
        name: float(is_alone[chosen].mean()) if chosen.any() else None
        for name, chosen in (("known", ~is_new), ("new", is_new))
    }
    return {
        "coverage": float(shares["known"]),
        "set_size": float(np.where(is_alone, 0, found.sizes)[~is_new].mean()),
        "known_with_none_of_these": float(shares["known_as_new"]),
        "known_as_none_of_these": alone["known"],
        "new_with_none_of_these": float(shares["new"]) if is_new.any() else None,
        "new_as_none_of_these": alone["new"],
    }


def in_words(asked: float, values: Mapping[str, Any]) -> str:
    """What is measured of sets with "none of these", in a sentence."""
    words = (
        f"asked {asked:g}, got {values['coverage']:.3f} for known classes, of which "
        f"{values['known_as_none_of_these']:.1%} are answered by it alone and "
        f"{values['known_with_none_of_these']:.1%} have it"
    )
    if values["new_as_none_of_these"] is None:
        return words
    return (
        f"{words}; of the others {values['new_as_none_of_these']:.1%} are answered by it alone and "
        f"{values['new_with_none_of_these']:.1%} have it"
    )
