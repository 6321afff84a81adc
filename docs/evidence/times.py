"""How long the expected and the noised hinge train until they reach an accuracy."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from answers import QUESTIONS, results

# By question, the losses that are compared, without their heads.
_HINGES = {"tail": "imbalanced {} hinge, cosine", "noise": "{} hinge, linear"}
# How far below the lower of the two mean best accuracies the accuracy is that both shall reach.
_MARGIN = 0.01


@dataclass(frozen=True)
class Time:
    """The time of a loss to an accuracy, over the fresh seeds.

    Attributes:
        accuracy: of validation, a share.
        reached: the share of runs that reach it, of those that did not diverge.
        epochs: the median number of epochs until then, where runs that do not reach it count as
            infinite.
        seconds: the median of the same times the median time of an epoch of that run.
    """

    accuracy: float
    reached: float
    epochs: float
    seconds: float


def ratio(by_kind: Mapping[str, Time]) -> float:
    """How many times as long the expected hinge takes as the noised one."""
    return by_kind["expected"].seconds / by_kind["noised"].seconds


@cache
def times() -> dict[str, dict[str, Time]]:
    """By study, the times of "noised" and "expected"."""
    return {
        study: _of_study(results(study), name)
        for question, name in _HINGES.items()
        for study in QUESTIONS[question]
    }


def _of_study(found: Mapping[str, Any], name: str) -> dict[str, Time]:
    arms = {arm["name"]: arm["runs"] for arm in found["arms"]}
    runs = {
        kind: [run for run in arms[name.format(kind)] if not run["diverged"]]
        for kind in ("noised", "expected")
    }
    best = [
        statistics.mean(max(run["validation_by_epoch"]) for run in of_kind)
        for of_kind in runs.values()
    ]
    accuracy = min(best) - _MARGIN
    return {kind: _time(of_kind, accuracy) for kind, of_kind in runs.items()}


def _time(runs: list[Mapping[str, Any]], accuracy: float) -> Time:
    epochs = [
        next(
            (
                number
                for number, value in enumerate(run["validation_by_epoch"], start=1)
                if value >= accuracy
            ),
            math.inf,
        )
        for run in runs
    ]
    # The median of a run leaves out the compilation in its first epoch.
    seconds = [
        number * statistics.median(run["epoch_seconds"])
        for number, run in zip(epochs, runs, strict=True)
    ]
    return Time(
        accuracy,
        sum(map(math.isfinite, epochs)) / len(runs),
        statistics.median(epochs),
        statistics.median(seconds),
    )
