"""How long the noised and the expected hinge train until they reach the same accuracy."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.reference import _studies as studies

HINGES = {
    "tail": ("imbalanced noised hinge, cosine", "imbalanced expected hinge, cosine"),
    "noise": ("noised hinge, linear", "expected hinge, linear"),
}
# The accuracy to reach is that much below the lower of the two mean best ones: 1 point.
BELOW = 0.01


@dataclass(frozen=True)
class Reached:
    """The share of the runs that reach the accuracy, and the medians over all runs."""

    share: float
    epochs: float
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """The accuracy in per cent, and the noised and the expected hinge."""

    accuracy: float
    noised: Reached
    expected: Reached

    @property
    def ratio(self) -> float:
        return self.expected.seconds / self.noised.seconds


def _question(study: str) -> str:
    return study.partition("_")[0]


def has_both_hinges(study: str) -> bool:
    """Whether the study compares samples of the noise with their expectation."""
    return _question(study) in HINGES


@functools.cache
def comparison(study: str) -> Comparison:
    """The two hinges of a study."""
    noised, expected = (studies.arm(study, name)["runs"] for name in HINGES[_question(study)])
    accuracy = min(_mean_best(noised), _mean_best(expected)) - BELOW
    return Comparison(100 * accuracy, _reached(noised, accuracy), _reached(expected, accuracy))


def epoch_seconds(study: str, arm: str) -> float:
    """The time of an epoch, a median over the runs of their medians."""
    runs = studies.arm(study, arm)["runs"]
    return float(np.median([np.median(run["epoch_seconds"]) for run in runs]))


def _mean_best(runs: list[dict[str, Any]]) -> float:
    return float(np.mean([max(run["validation_by_epoch"]) for run in runs]))


def _reached(runs: list[dict[str, Any]], accuracy: float) -> Reached:
    epochs = [_epochs(run, accuracy) for run in runs]
    # The median over the epochs of a run leaves out compilation, which is only in the first.
    seconds = [
        number * float(np.median(run["epoch_seconds"]))
        for number, run in zip(epochs, runs, strict=True)
    ]
    share = sum(map(math.isfinite, epochs)) / len(epochs)
    return Reached(share, float(np.median(epochs)), float(np.median(seconds)))


def _epochs(run: dict[str, Any], accuracy: float) -> float:
    """The first epoch that reaches the accuracy, counted from 1; infinity if none does."""
    found = enumerate(run["validation_by_epoch"], start=1)
    return next((float(epoch) for epoch, value in found if value >= accuracy), math.inf)
