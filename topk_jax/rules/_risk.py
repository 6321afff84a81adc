"""Sets whose mean cost is bounded: conformal risk control.

Angelopoulos et al. (2024) bound the expected loss of new examples, for losses that do not grow as
sets grow. A set that has the label costs nothing. Others cost what the label costs with the most
similar class in the set. If the truth of an example is several classes, the cost is the mean by
their shares.
"""

from decimal import Decimal
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, metrics
from topk_jax.rules._calibration import Calibration
from topk_jax.rules._rule import POSITIVE, Rule, error_of
from topk_jax.taxonomy import Taxonomy

# The costs that have a name.
COSTS = ("missed", "macro", "taxonomy")


class Risk(Rule):
    """The classes above one limit, whose sets cost little on average."""

    name = "risk"
    must_be = POSITIVE

    @property
    def promised(self) -> float | None:
        # The mean of these costs is the share of missed labels.
        return float(error_of(self.value)) if self.costs == "missed" else None

    def find_limits(self, examples: Calibration) -> ArrayLike:
        """The largest limit whose sets cost at most the risk on average over new examples.

        Identity: the cost summed over the examples falls only at the score of a class that makes a
        set cheaper. So these scores are all limits that differ, and no grid of limits is needed.
        """
        if self.costs in COSTS:
            of_labels, similar = named_costs(
                self.costs,
                examples.num_classes,
                class_counts=examples.class_counts,
                taxonomy=examples.taxonomy,
            )
        else:
            of_labels, similar = examples.given("costs"), examples.similar
        number, largest, risk = len(examples), float(of_labels.max()), Decimal(str(self.value))
        if risk >= largest:
            raise ValueError(
                f"risk must be less than the largest cost, {largest:g}, which no set exceeds; got "
                f"{self.value}"
            )
        examples.check_number(Decimal(repr(largest)) / risk)
        # What all sets may cost together: a new example costs at most `largest`.
        allowed = risk * (number + 1) - Decimal(repr(largest))
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

    def describe_effect(self) -> str:
        return (
            f"from {self.on}, sets of new ones like them cost at most {self.value} on average, by "
            f"the costs {self.costs}. A set that has the true class costs nothing."
        )


def named_costs(
    name: str,
    num_classes: int,
    *,
    class_counts: ArrayLike | None = None,
    taxonomy: Taxonomy | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """What a set costs that lacks the label, by one of `COSTS`.

    The costs missed are all 1. The mean of the costs macro is the mean over the classes of the part
    of labels that is missed. By a taxonomy, a set costs the height of the lowest node with the
    label and a class of the set; the height of the root is 1.

    Args:
        name: the name of the costs.
        num_classes: the number of classes L.
        class_counts: the training examples of each class, `[L]`, for "macro".
        taxonomy: what is above the classes, for "taxonomy".

    Returns:
        The costs by label, `[L]`; and what a set costs at most by label and by a class of the set,
        `[L, L]`, or None if no class is similar to another.

    Raises:
        ValueError: there are no such costs, or they need what is not given.

    Example:
        >>> from topk_jax import rules
        >>> print(rules.named_costs("macro", 2, class_counts=[30, 10])[0])
        [0.66666667 2.        ]
    """
    if name not in COSTS:
        raise ValueError(f"costs must be one of {', '.join(COSTS)}; got {name!r}")
    ones = np.ones(num_classes)
    if name == "missed":
        return ones, None
    needed: Any = class_counts if name == "macro" else taxonomy
    if needed is None:
        what = "class_counts, the training examples of each," if name == "macro" else name
        raise ValueError(f"{what} must be given for the costs {name}")
    if name == "macro":
        counts = np.asarray(_checks.class_counts(needed, "class_counts", num_classes), np.float64)
        return counts.sum() / (num_classes * counts), None
    labels, others = np.indices((num_classes, num_classes))
    heights = np.asarray(metrics.mistake_heights(others, labels, needed), np.float64)
    return ones, heights / needed.heights.max()


def _saved(
    scores: np.ndarray,
    labels: np.ndarray,
    shares: np.ndarray,
    of_labels: np.ndarray,
    similar: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """At which scores [n, L] the cost of a set falls as the limit falls, and by how much."""
    if similar is None:
        at = np.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]
        return at, shares * of_labels[labels]
    order = np.argsort(-scores, axis=-1, kind="stable")
    costs = np.take_along_axis(similar[labels], order, axis=-1)
    best = np.minimum.accumulate(np.column_stack([of_labels[labels], costs]), axis=-1)
    saved = -np.diff(best, axis=-1) * shares[:, None]
    falls = saved > 0
    return np.take_along_axis(scores, order, axis=-1)[falls], saved[falls]
