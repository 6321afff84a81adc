"""Divides examples into those that are calibrated on and those that are evaluated."""

import numpy as np

from train.foundation.errors import UserError
from train.scores.scores import Scores, numbered

# The halves are drawn from it.
_SEED = 0


def divide(scores: Scores) -> tuple[Scores, Scores]:
    """One half of the examples to calibrate on, and the other half to evaluate.

    A group is in one half, and examples of unknown classes are only evaluated. The halves are the
    same for the same examples and names of groups.

    Raises:
        UserError: there is only one example of a known class, or one group.
    """
    known = np.flatnonzero(scores.known)
    of, what = np.arange(len(known)), "example"
    if scores.groups is not None:
        names, of = numbered(scores.groups[known])
        order = sorted(range(len(names)), key=lambda one: (names[one] == "", names[one]))
        of, what = np.argsort(order)[of], "group"
    number = int(of.max(initial=-1)) + 1
    if number < 2:
        raise UserError(
            f"--calibration=half needs at least two {what}s of known classes; got {number}"
        )
    first = np.random.default_rng(_SEED).permutation(number)[: number // 2]
    is_first = np.zeros(len(scores), bool)
    is_first[known] = np.isin(of, first)
    return scores.take(np.flatnonzero(is_first)), scores.take(np.flatnonzero(~is_first))
