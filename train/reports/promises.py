"""Whether new examples contradict what sets promise, and how much more they may miss."""

import math
from decimal import Decimal

from scipy import stats

from topk_jax.rules import Promise

# The probability that new examples contradict a promise although they are like those that it was
# calibrated on, at most.
FALSE_ALARMS = 0.05
# More new examples would not change a verdict, but cost memory.
_MOST = 10**6
# A share times a number can be rounded above the count that it comes from.
_ROUNDING = 1e-6


def is_contradicted(promise: Promise, share: float, number: float) -> bool | None:
    """Whether so few labels are in their sets that the promise is contradicted.

    Limits that come from n examples have a random coverage, of a beta distribution; see
    `CalibratedOn.law`. So the number of labels in their sets, among new examples of the same kind,
    is beta-binomial. It contradicts the promise if it is among the smallest numbers, which have a
    probability of less than 5% together.

    Args:
        promise: what the sets promise.
        share: the share of new examples that have their label in their set.
        number: how many independent examples these are; see `train.scores.num_independent`.

    Returns:
        The verdict; None if it is not known what the limits come from.
    """
    if promise.calibrated_on is None:
        return None
    law = promise.calibrated_on.law(promise.coverage)
    if law is None:
        return False
    counted = min(math.floor(number + _ROUNDING), _MOST)
    hits = math.ceil(share * counted - _ROUNDING)
    return bool(stats.betabinom.cdf(hits, counted, *law) < FALSE_ALARMS)


def allowed_error(promise: Promise, delta: float) -> float:
    """The part of labels that the limits miss at most, but with the probability delta."""
    on = promise.calibrated_on
    law = None if on is None else on.law(promise.coverage)
    if law is None:
        return float(1 - Decimal(repr(promise.coverage)))
    covered, missed = law
    return float(stats.beta.ppf(1 - delta, missed, covered))
