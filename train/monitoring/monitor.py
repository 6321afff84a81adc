"""A monitor: it counts outcomes, and notices when they break the promise of their sets."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from topk_jax import metrics
from train.monitoring.outcome_lines import Outcome
from train.monitoring.promise import Promise
from train.monitoring.stream_tests import StreamTests

# The most points of a curve. Beyond these, every second point is left out.
_MOST_POINTS = 500


@dataclass(frozen=True)
class Curve:
    """What is drawn: points of some outcomes, the same number apart.

    Attributes:
        step: that number.
        points: the number of outcomes, the misses among them, and the logarithms of the evidence
            that the promise is broken and that the scores changed, `[points, 4]`.
    """

    step: int
    points: np.ndarray

    def extended(self, points: np.ndarray) -> "Curve":
        """The curve with the points of all further outcomes."""
        step, points = self.step, np.concatenate([self.points, points])
        while True:
            points = points[points[:, 0] % step == 0]
            if len(points) <= _MOST_POINTS:
                return Curve(step, points)
            step *= 2


@dataclass(frozen=True)
class Monitor:
    """What is known after some outcomes.

    Attributes:
        promise: what the sets are held to.
        tests: the tests of the outcomes.
        total_size: the sum of the sizes of the sets.
        broken_at: the number of outcomes after which the promise was found broken; None if it is
            not.
        changed_at: the same for the scores of the labels.
        curve: what is drawn.
    """

    promise: Promise
    tests: StreamTests
    total_size: int = 0
    broken_at: int | None = None
    changed_at: int | None = None
    curve: Curve = Curve(1, np.empty((0, 4)))

    @property
    def count(self) -> int:
        """The number of outcomes."""
        return int(self.tests.coverage.wealth.count)

    @property
    def misses(self) -> int:
        """How many labels were outside their sets."""
        return int(self.tests.coverage.misses)

    @property
    def is_alarmed(self) -> bool:
        """Whether there was an alarm."""
        return self.broken_at is not None or self.changed_at is not None

    def interval(self) -> tuple[float, float]:
        """The coverage so far, with a confidence of 95% at all times together."""
        low, high = metrics.anytime_interval(
            np.array(self.count - self.misses), np.array(self.count)
        )
        return float(low), float(high)

    def add(self, outcomes: Sequence[Outcome]) -> "Monitor":
        """The monitor after more outcomes of its rule."""
        tests, evidence = self.tests.update(outcomes)
        numbers = self.count + 1 + np.arange(len(outcomes))
        misses = self.misses + np.cumsum([outcome.missed for outcome in outcomes])
        reached = evidence >= self.promise.log_needed
        first = [int(numbers[column.argmax()]) if column.any() else None for column in reached.T]
        return replace(
            self,
            tests=tests,
            total_size=self.total_size + sum(outcome.size for outcome in outcomes),
            broken_at=self.broken_at or first[0],
            changed_at=self.changed_at or first[1],
            curve=self.curve.extended(np.column_stack([numbers, misses, evidence])),
        )

    def _promised(self) -> str:
        number, groups = self.promise.calibrated_on, self.promise.independent
        if number is None:
            return f"{self.promise.coverage:.1%} is asked for"
        of_groups = "" if groups == number else f" in groups, like {groups:,} independent ones,"
        return (
            f"{self.promise.coverage:.1%} is promised, and {1 - self.promise.allowed_error():.1%} "
            f"allowed, because {number:,} examples{of_groups} calibrate it"
        )

    def in_words(self) -> list[str]:
        """What is known, in lines."""
        promise, count = self.promise, self.count
        if count == 0:
            return [f"no outcomes yet of sets of {promise.rule}"]
        low, high = self.interval()
        covered = 1 - self.misses / count
        lines = [
            f"{count:,} outcomes of sets of {promise.rule}, of {self.total_size / count:.3g} "
            "classes on average",
            f"coverage {covered:.1%}, at all times {low:.1%} to {high:.1%}; {self._promised()}",
        ]
        peaks = (self.tests.coverage.wealth.log_peak, self.tests.change.wealth.log_peak)
        for what, peak, at in zip(
            ("the promise is broken", "the scores of the labels changed"),
            peaks,
            (self.broken_at, self.changed_at),
            strict=True,
        ):
            needed = _large(promise.log_needed)
            largest = f"the largest evidence is {_large(float(peak))}"
            lines.append(
                f"no alarm that {what}: {largest}, and an alarm needs {needed}"
                if at is None
                else f"{what}: noticed at outcome {at:,} by an evidence of {needed}; {largest}"
            )
        return lines


def _large(log_number: float) -> str:
    """A number of any size, by its logarithm."""
    return (
        f"{math.exp(log_number):,.0f}" if log_number < 14 else f"1e{log_number / math.log(10):.0f}"
    )
