"""Sets that may have "none of these": the limits of outlier scores, and how good such sets are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import jax
import numpy as np

from topk_jax import metrics, sets
from train.evaluation import thresholds
from train.evaluation.summaries import Sets
from train.foundation.errors import UserError


@dataclass(frozen=True)
class NewClassLimits:
    """The outlier scores at which "none of these" joins the classes of a set, and replaces them.

    Attributes:
        known_to: the largest outlier score of an example that may be of a known class. Above it,
            the answer is only "none of these".
        new_from: the smallest score of an example whose classes have "none of these" beside them.
    """

    known_to: float
    new_from: float

    def apply(self, members: jax.Array, outliers: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Sets [n, L] with outlier scores [n] to the sets that are left, and who is new, [n]."""
        found = sets.open_set(members, outliers, known_to=self.known_to, new_from=self.new_from)
        return found[:, :-1], found[:, -1]


def coverage_of_classes(coverage: float) -> float:
    """The coverage that the classes need: half of the error is for them."""
    return float(1 - thresholds.error_of(coverage) / 2)


def error_of_limit(coverage: float) -> Decimal:
    """The error of each of the two limits, which have the other half."""
    return thresholds.error_of(coverage) / 4


def fewest_examples(coverage: float) -> int:
    """The fewest examples with which "none of these" is not the answer for all."""
    return math.ceil(1 / error_of_limit(coverage) - 1)


def check_enough(number: int, coverage: float) -> None:
    """Raises `UserError` for fewer examples."""
    fewest = fewest_examples(coverage)
    if number < fewest:
        raise UserError(
            f"'none of these' with a coverage of {coverage} needs at least "
            f"4 / {thresholds.error_of(coverage)} - 1 = {fewest} examples to calibrate on; there "
            f"are {number}"
        )


def limits(outliers: np.ndarray, labels: np.ndarray, coverage: float) -> NewClassLimits:
    """The limits from examples of known classes.

    Args:
        outliers: their outlier scores, float32 [n].
        labels: their classes, [n].
        coverage: the probability that a set is right, for examples of all classes.

    Raises:
        UserError: so few examples can only promise it by "none of these" for all.
    """
    number = len(labels)
    check_enough(number, coverage)
    error = float(error_of_limit(coverage))
    # The scores have a single class, as in `thresholds.conformal_threshold`.
    known_to = sets.conformal_quantile(outliers, np.zeros(number, np.int32), error=error)
    once = np.bincount(labels)[labels] == 1
    new_from = sets.new_class_threshold(outliers, once, error=error)
    return NewClassLimits(float(known_to), float(new_from))


def rate(found: Sets, says_new: np.ndarray, is_new: np.ndarray) -> dict[str, Any]:
    """The quality of sets with "none of these" [n].

    Args:
        found: the sets of the classes that are left.
        says_new: whether "none of these" is beside them or in their place; so it is in all empty
            sets.
        is_new: whether an example is of a class that is not known.
    """
    hits = found.of_labels
    shares = metrics.open_set_accuracy(hits, says_new, is_new)
    alone = says_new & (found.sizes == 0)
    return {
        "coverage": float(shares["all"]),
        "known": {
            "coverage": _share(hits, ~is_new),
            "set_size": _share(found.sizes, ~is_new),
            "none_of_these": _share(says_new, ~is_new),
            "none_of_these_alone": _share(alone, ~is_new),
        },
        "unknown": {
            "set_size": _share(found.sizes, is_new),
            "none_of_these": _share(says_new, is_new),
            "none_of_these_alone": _share(alone, is_new),
        },
    }


def _share(values: np.ndarray, chosen: np.ndarray) -> float | None:
    """The mean of the chosen values; None if none is."""
    return float(values[chosen].mean()) if chosen.any() else None


def in_words(values: Mapping[str, Any]) -> str:
    """What `rate` has, in a sentence."""
    known, unknown = values["known"], values["unknown"]
    parts = []
    for what, found in (("known", known), ("unknown", unknown)):
        if found["set_size"] is None:
            continue
        right = "" if what == "unknown" else f"the label in {found['coverage']:.1%}, "
        parts.append(
            f"of {what} classes {right}{found['set_size']:.3g} classes on average, 'none of these' "
            f"in {found['none_of_these']:.1%}, alone in {found['none_of_these_alone']:.1%}"
        )
    return "; ".join(parts)
