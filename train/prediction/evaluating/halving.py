"""Divides examples into those that are evaluated and those that are calibrated on."""

import numpy as np

from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError

# The halves are drawn from it.
_SEED = 0


def halves(examples: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """The indices of one half of the examples, and of the other; a group is in one of them.

    They are the same for the same examples.

    Raises:
        UserError: there is only one example, or one group.
    """
    number, what = len(examples.labels), "example"
    of_group = np.arange(number)
    if examples.groups is not None:
        names, of_group = np.unique(examples.groups.astype(str), return_inverse=True)
        number, what = len(names), "group"
    if number < 2:
        raise UserError(f"--recalibrate=half needs at least two {what}s of known classes; got 1")
    is_first = np.isin(of_group, _first_half(number))
    return np.flatnonzero(is_first), np.flatnonzero(~is_first)


def divide(
    num_examples: int, num_calibration: int, *, same: bool, is_half: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the examples that are evaluated, and of those that are calibrated on.

    Args:
        num_examples: the number of examples to evaluate.
        num_calibration: the number of examples to calibrate on.
        same: whether these are the same.
        is_half: whether only one half of them is calibrated on. The other half is evaluated if they
            are the same.

    Raises:
        UserError: there are too few examples for two halves.
    """
    if not is_half:
        return np.arange(num_examples), np.arange(num_calibration)
    if num_calibration < 2:
        raise UserError("--calibration=half needs at least two examples to calibrate on; got 1")
    is_first = np.isin(np.arange(num_calibration), _first_half(num_calibration))
    rest = np.flatnonzero(~is_first) if same else np.arange(num_examples)
    return rest, np.flatnonzero(is_first)


def describe(others: str, *, same: bool, is_half: bool) -> str:
    """In words, what thresholds are calibrated on.

    Args:
        others: the examples to calibrate on, in words.
        same: as in `divide`.
        is_half: as in `divide`.
    """
    if not is_half:
        return "the same examples" if same else others
    return "the other half of the examples" if same else f"half of the {others}"


def _first_half(number: int) -> np.ndarray:
    return np.random.default_rng(_SEED).permutation(number)[: number // 2]
