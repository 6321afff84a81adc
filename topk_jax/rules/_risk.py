"""Sets whose mean cost is bounded: conformal risk control.

Angelopoulos et al. (2024) bound the expected loss of new examples, for losses that do not grow as
sets grow. A set that has the label costs nothing. Others cost what the label costs with the most
similar class in the set. If the truth of an example is several classes, the cost is the mean by
their shares.
"""

import math
from decimal import Decimal

import numpy as np
from jax.typing import ArrayLike

from topk_jax import metrics
from topk_jax.rules._calibration import Calibration
from topk_jax.rules._numbers import error_of, number_of
from topk_jax.rules._promise import TooFewError
from topk_jax.rules._rule import Rule
from topk_jax.rules._thresholds import describe_threshold

# The costs that have a name.
NAMED = ("missed", "macro", "taxonomy")


class Risk(Rule):
    """The classes above one threshold, whose sets cost little on average."""

    name = "risk"
    words = "cost at most that on average, with costs=missed, macro, taxonomy or your own"

    @classmethod
    def read_value(cls, text: str) -> float:
        return number_of(text, lambda value: value > 0, "a number above 0")

    @property
    def promised(self) -> float | None:
        # The mean of these costs is the share of missed labels.
        return float(error_of(float(self.value))) if self.costs == "missed" else None

    def find_limits(self, examples: Calibration) -> ArrayLike:
        of_labels, similar = _costs(str(self.costs), examples)
        return _threshold(examples, of_labels, similar, float(self.value))

    def describe_sets(self) -> str:
        risk = str(self.value).removesuffix(".0")
        return (
            f"{describe_threshold(self)} With this threshold, from {self.on}, sets of new ones "
            f"like them cost at most {risk} on average, by the costs {self.costs}. A set that has "
            "the true class costs nothing."
        )


def _costs(name: str, examples: Calibration) -> tuple[np.ndarray, np.ndarray | None]:
    """What sets cost by label, [L], and at most by label and a class of the set, [L, L]."""
    number, tree = examples.num_classes, examples.taxonomy
    if name == "missed":
        return np.ones(number), None
    if name == "macro":
        # The mean is the mean over the classes of the part of labels that is missed.
        counts = examples.counts_for("costs=macro")
        return counts.sum() / (number * counts.astype(float)), None
    if name == "taxonomy":
        # The height of the lowest node with the label and a class of the set; 1 for the root.
        if tree is None:
            raise ValueError("costs=taxonomy needs a taxonomy of the classes")
        labels, others = np.indices((number, number))
        heights = np.asarray(metrics.mistake_heights(others, labels, tree), np.float64)
        return np.ones(number), heights / tree.heights.max()
    if examples.costs is None:
        raise ValueError(
            f"costs must be {', '.join(NAMED)}, or given as the array costs; got {name}"
        )
    return examples.costs, examples.similar


def _threshold(
    examples: Calibration, of_labels: np.ndarray, similar: np.ndarray | None, risk: float
) -> float:
    """The largest threshold whose sets cost at most `risk` on average over new examples.

    Identity: the cost summed over the examples falls only at the score of a class that makes a set
    cheaper. So these scores are all thresholds that differ, and no grid of thresholds is needed.
    """
    number, largest = len(examples), float(of_labels.max())
    if risk >= largest:
        raise ValueError(
            f"risk must be less than the largest cost, {largest:g}, which no set exceeds; got "
            f"{risk:g}"
        )
    # What all sets may cost together: a new example costs at most `largest`.
    allowed = Decimal(repr(risk)) * (number + 1) - Decimal(repr(largest))
    if allowed < 0:
        fewest = math.ceil(Decimal(repr(largest)) / Decimal(repr(risk))) - 1
        raise TooFewError(
            f"a risk of {risk} with costs of up to {largest:g} needs at least {fewest} examples to "
            f"calibrate on; there are {number}"
        )
    classes, shares = examples.classes, np.ones((number, 1))
    if examples.shares is not None:
        shares = examples.shares.astype(np.float64)
    parts = [
        _saved(examples.scores[chunk], labels, share, of_labels, similar)
        for chunk in examples.chunks()
        for labels, share in zip(classes[chunk].T, shares[chunk].T, strict=True)
    ]
    scores, saved = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(-scores, kind="stable")
    left = (shares * of_labels[classes]).sum() - np.cumsum(saved[order])
    # All of equal scores are in the sets. Sums round: what is left of all is 0.
    is_last = np.append(scores[order][1:] != scores[order][:-1], True)
    left[-1] = 0
    first = np.flatnonzero(is_last & (left <= float(allowed)))[0]
    return float(scores[order][first])


def _saved(
    scores: np.ndarray,
    labels: np.ndarray,
    shares: np.ndarray,
    of_labels: np.ndarray,
    similar: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """At which scores [n, L] the cost of a set falls as the threshold falls, and by how much."""
    if similar is None:
        at = np.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]
        return at, shares * of_labels[labels]
    order = np.argsort(-scores, axis=-1, kind="stable")
    costs = np.take_along_axis(similar[labels], order, axis=-1)
    best = np.minimum.accumulate(np.column_stack([of_labels[labels], costs]), axis=-1)
    saved = -np.diff(best, axis=-1) * shares[:, None]
    falls = saved > 0
    return np.take_along_axis(scores, order, axis=-1)[falls], saved[falls]
