"""The threshold that bounds the mean cost of sets: conformal risk control.

Angelopoulos et al. (2024) bound the expected loss of new examples, for losses that do not grow as
sets grow. If the truth of an example is several classes, its loss is their mean by their shares.
"""

import dataclasses
import math
from decimal import Decimal

import numpy as np

from train.evaluation.costs import Costs, truths_of
from train.evaluation.predictions import Predictions, chunks
from train.evaluation.thresholds import NoLimitsError
from train.foundation.errors import UserError


def threshold(examples: Predictions, costs: Costs, risk: float) -> float:
    """The largest threshold whose sets cost at most `risk` on average over new examples.

    Identity: the cost summed over the examples falls only at the score of a class that makes a set
    cheaper. So these scores are all thresholds that differ, and no grid of thresholds is needed.

    Raises:
        UserError: the examples are too few to promise that, or no set costs more.
    """
    number = len(examples.labels)
    if risk >= costs.largest:
        raise UserError(
            f"--risk must be less than the largest cost, {costs.largest:g}, which no set exceeds; "
            f"got {risk:g}"
        )
    # What all sets may cost together: a new example costs at most `largest`.
    allowed = Decimal(repr(risk)) * (number + 1) - Decimal(repr(costs.largest))
    if allowed < 0:
        fewest = math.ceil(Decimal(repr(costs.largest)) / Decimal(repr(risk))) - 1
        raise NoLimitsError(
            f"--risk={risk} with costs of up to {costs.largest:g} needs at least {fewest} examples "
            f"to calibrate on; there are {number}"
        )
    if examples.truths is not None:
        known = examples.truths.among(examples.scores.shape[-1])
        examples = dataclasses.replace(examples, truths=known)
    classes, shares = truths_of(examples)
    parts = [
        _saved(examples.scores[chunk], labels, share, costs)
        for chunk in chunks(examples.scores)
        for labels, share in zip(classes[chunk].T, shares[chunk].T, strict=True)
    ]
    scores, saved = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(-scores, kind="stable")
    left = (shares * costs.of_labels[classes]).sum() - np.cumsum(saved[order])
    # All of equal scores are in the sets. Sums round: what is left of all is 0.
    is_last = np.append(scores[order][1:] != scores[order][:-1], True)
    left[-1] = 0
    first = np.flatnonzero(is_last & (left <= float(allowed)))[0]
    return float(scores[order][first])


def _saved(
    scores: np.ndarray, labels: np.ndarray, shares: np.ndarray, costs: Costs
) -> tuple[np.ndarray, np.ndarray]:
    """At which scores [n, L] the cost of a set falls as the threshold falls, and by how much."""
    if costs.between is None:
        of_labels = np.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]
        return of_labels, shares * costs.of_labels[labels]
    order = np.argsort(-scores, axis=-1, kind="stable")
    similar = np.take_along_axis(costs.between[labels], order, axis=-1)
    best = np.minimum.accumulate(np.column_stack([costs.of_labels[labels], similar]), axis=-1)
    saved = -np.diff(best, axis=-1) * shares[:, None]
    falls = saved > 0
    return np.take_along_axis(scores, order, axis=-1)[falls], saved[falls]
