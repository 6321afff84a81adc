"""The threshold that bounds the mean cost of sets: conformal risk control.

Angelopoulos et al. (2024) bound the expected loss of new examples, for losses that do not grow as
sets grow.
"""

from decimal import Decimal

import numpy as np

from train.evaluation.costs import Costs
from train.evaluation.predictions import Predictions, chunks
from train.foundation.errors import UserError


def threshold(examples: Predictions, costs: Costs, risk: float) -> float:
    """The largest threshold whose sets cost at most `risk` on average over new examples.

    Identity: the cost summed over the examples falls only at the score of a class that makes a set
    cheaper. So these scores are all thresholds that differ, and no grid of thresholds is needed.

    Raises:
        UserError: the examples are too few to promise that.
    """
    number = len(examples.labels)
    # What all sets may cost together: a new example costs at most `largest`.
    allowed = Decimal(repr(risk)) * (number + 1) - Decimal(repr(costs.largest))
    if allowed < 0:
        fewest = int(-(-Decimal(repr(costs.largest)) // Decimal(repr(risk)))) - 1
        raise UserError(
            f"--risk={risk} with costs of up to {costs.largest:g} needs at least {fewest} examples "
            f"to calibrate on; there are {number}"
        )
    parts = [costs.saved(examples.scores[c], examples.labels[c]) for c in chunks(examples.scores)]
    scores, saved = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(-scores, kind="stable")
    total = costs.of_labels[examples.labels].sum()
    left = total - np.cumsum(saved[order])
    # All of equal scores are in the sets. Sums round: what is left of all is 0.
    is_last = np.append(scores[order][1:] != scores[order][:-1], True)
    left[-1] = 0
    first = np.flatnonzero(is_last & (left <= float(allowed)))[0]
    return float(scores[order][first])
