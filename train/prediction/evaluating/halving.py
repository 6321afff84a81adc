"""Divides examples into those that are evaluated and those that are calibrated on."""

from dataclasses import dataclass

import numpy as np

from train.evaluation import example_groups
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError

# The halves are drawn from it.
_SEED = 0


@dataclass(frozen=True)
class Division:
    """Examples that are evaluated, and examples that are calibrated on.

    Attributes:
        evaluated: the predictions for those that are evaluated.
        calibrating: the predictions for those that are calibrated on.
        chosen: the indices of those that are evaluated, among those that could be.
        others: the indices of those that are calibrated on, among those that could be.
        calibrated_on: these in words.
    """

    evaluated: Predictions
    calibrating: Predictions
    chosen: np.ndarray
    others: np.ndarray
    calibrated_on: str


def divide(
    examples: Predictions, calibration: Predictions | None, *, is_half: bool, in_words: str
) -> Division:
    """Divides examples.

    Args:
        examples: the examples to evaluate.
        calibration: the examples to calibrate on; None for the same.
        is_half: whether only one half of these is calibrated on. If they are the same, the other
            half is evaluated. A group is in one half.
        in_words: the examples to calibrate on, in words.

    Raises:
        UserError: there are too few examples for two halves.
    """
    given = examples if calibration is None else calibration
    chosen, others = np.arange(len(examples.labels)), np.arange(len(given.labels))
    if is_half:
        others, rest = halves(given, flag="calibration")
        in_words = f"half of the {in_words}"
    if calibration is None:
        chosen = rest if is_half else chosen
        in_words = "the other half of the examples" if is_half else "the same examples"
    return Division(examples.take(chosen), given.take(others), chosen, others, in_words)


def halves(examples: Predictions, *, flag: str) -> tuple[np.ndarray, np.ndarray]:
    """The indices of one half of the examples, and of the other; a group is in one of them.

    They are the same for the same examples.

    Args:
        examples: the examples.
        flag: the flag that asks for halves.

    Raises:
        UserError: there is only one example, or one group.
    """
    number, what = len(examples.labels), "example"
    of_group = np.arange(number)
    if examples.groups is not None:
        of_group = example_groups.numbered_by_name(examples.groups)
        number, what = int(of_group.max()) + 1, "group"
    if number < 2:
        raise UserError(f"--{flag}=half needs at least two {what}s of known classes; got 1")
    first = np.random.default_rng(_SEED).permutation(number)[: number // 2]
    is_first = np.isin(of_group, first)
    return np.flatnonzero(is_first), np.flatnonzero(~is_first)
