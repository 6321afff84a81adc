"""A monitor: it counts outcomes, and notices when they break the promise of their sets."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import metrics
from topk_jax.drift import CoverageTest, JumperMartingale, OnlineRanks
from topk_jax.rules import CalibratedOn, Promise
from train.foundation.errors import UserError
from train.reports import promises, rules

# The causes of a false alarm, each with the same probability: a calibration that happened to miss
# more than allowed, outcomes that did, and scores that seem to change.
_CAUSES = 3
# The exit codes of an alarm.
_BROKEN = 3
_CHANGED = 4
# The most points of a figure. Beyond these, every second point is left out.
_MOST_POINTS = 500
# What it counted.
_COUNTED = ("tests", "total_size", "broken_at", "changed_at", "points")
# Outcomes of one call of the compiled program.
_BLOCK = 256
# The scores of labels are 1 minus their probability, in intervals of this length, and _MISSED
# outside the set.
_INTERVALS = 64
_MISSED = 2.0
# The seed of the random numbers that smooth p-values; any constant would do.
_SEED = 0


class Outcome(NamedTuple):
    """A set whose label was found; a probability that is not known is None."""

    missed: bool
    probability: float | None
    size: int


class _Tests(NamedTuple):
    """The misses, the p-values of the scores of labels among all so far, and their uniformity."""

    coverage: CoverageTest
    ranks: OnlineRanks
    change: JumperMartingale

    def peaks(self) -> jax.Array:
        """The logarithms of the largest evidence that the promise broke, and of a change."""
        return jnp.stack([self.coverage.wealth.log_peak, self.change.wealth.log_peak])


@dataclass(frozen=True)
class Monitor:
    """What is known after some outcomes.

    Attributes:
        rule: the text of the rule of the sets.
        promise: what they are held to; of sets that promise nothing, without a calibration.
        delta: the probability of a false alarm.
        tests: the tests of the outcomes.
        total_size: the sum of the sizes of the sets.
        broken_at: the number of outcomes after which the promise was found broken, or None.
        changed_at: the same for the scores of the labels.
        points: what a figure shows, for numbers of outcomes the same step apart: this number, the
            misses, and the peaks of both tests, `[points, 4]`.
    """

    rule: str
    promise: Promise
    delta: float
    tests: _Tests
    total_size: int = 0
    broken_at: int | None = None
    changed_at: int | None = None
    points: np.ndarray = dataclasses.field(default_factory=lambda: np.empty((0, 4)))

    @classmethod
    def start(cls, rule: str, promise: Promise, delta: float) -> "Monitor":
        """The monitor before any outcome."""
        edges = np.append(np.arange(1, _INTERVALS) / _INTERVALS, _MISSED).astype(np.float32)
        coverage = CoverageTest.start(error=promises.allowed_error(promise, delta / _CAUSES))
        tests = _Tests(coverage, OnlineRanks.start(edges=edges), JumperMartingale.start())
        return cls(rule, promise, delta, tests)

    def to_plain(self) -> dict[str, Any]:
        """What it counted, for a file of JSON."""
        counted = {name: getattr(self, name) for name in _COUNTED}
        return counted | {"tests": jax.tree.leaves(self.tests)}

    def restored(self, plain: Mapping[str, Any]) -> "Monitor":
        """The monitor of the same promise that counted what `to_plain` described."""
        like, tree = jax.tree.flatten(self.tests)
        given = zip(map(_numbers, plain["tests"]), like, strict=True)
        leaves = [jnp.array(one.reshape(leaf.shape), leaf.dtype) for one, leaf in given]
        counted = {name: plain[name] for name in _COUNTED} | {
            "tests": jax.tree.unflatten(tree, leaves),
            "points": _numbers(plain["points"]).reshape(-1, 4),
        }
        return dataclasses.replace(self, **counted)

    @property
    def count(self) -> int:
        """The number of outcomes."""
        return int(self.tests.coverage.wealth.count)

    @property
    def misses(self) -> int:
        """How many labels were outside their sets."""
        return int(self.tests.coverage.misses)

    @property
    def log_needed(self) -> float:
        """The logarithm of the evidence for an alarm."""
        return math.log(_CAUSES / self.delta)

    @property
    def allowed_error(self) -> float:
        """The part of labels that may be missed: a large quantile over calibrations."""
        return promises.allowed_error(self.promise, self.delta / _CAUSES)

    @property
    def exit_code(self) -> int:
        """That of the command: 0 without an alarm."""
        return _BROKEN if self.broken_at else _CHANGED if self.changed_at else 0

    def add(self, outcomes: Sequence[Outcome]) -> "Monitor":
        """The monitor after more outcomes of its rule."""
        tests, found = self.tests, [np.empty((0, 2))]
        missed = np.array([one.missed for one in outcomes], bool)
        # Without a probability, only what is missed is compared.
        known = (1.0 if one.probability is None else one.probability for one in outcomes)
        scores = np.where(missed, _MISSED, 1 - np.array([*known])).astype(np.float32)
        for begin in range(0, len(outcomes), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            number = len(missed[block])
            padded = (np.resize(column[block], _BLOCK) for column in (missed, scores))
            tests, peaks = _updated(tests, *padded, number)
            found.append(np.asarray(peaks)[:number])
        counts, evidence = self.count + 1 + np.arange(len(outcomes)), np.concatenate(found)
        reached = evidence >= self.log_needed
        first = [int(counts[column.argmax()]) if column.any() else None for column in reached.T]
        more = np.column_stack([counts, self.misses + missed.cumsum(), evidence])
        return dataclasses.replace(
            self,
            tests=tests,
            total_size=self.total_size + sum(one.size for one in outcomes),
            broken_at=self.broken_at or first[0],
            changed_at=self.changed_at or first[1],
            points=_thinned(np.concatenate([self.points, more])),
        )

    def in_words(self) -> list[str]:
        """What is known after at least one outcome, in lines."""
        promise, count, hits = self.promise, self.count, self.count - self.misses
        low, high = map(float, metrics.anytime_interval(np.array(hits), np.array(count)))
        promised = f"{promise.coverage:.1%} is asked for"
        if (on := promise.calibrated_on) is not None:
            alike = f" in groups, like {on.groups:,.0f} independent ones,"
            promised = (
                f"{promise.coverage:.1%} is promised, and {1 - self.allowed_error:.1%} "
                f"allowed, because {on.examples:,} examples"
                f"{'' if on.groups == on.examples else alike} calibrate it"
            )

        def told(what: str, peak: float, at: int | None) -> str:
            needed, largest = _large(self.log_needed), f"the largest evidence is {_large(peak)}"
            if at is None:
                return f"no alarm that {what}: {largest}, and an alarm needs {needed}"
            return f"{what}: noticed at outcome {at:,} by an evidence of {needed}; {largest}"

        broken, changed = self.tests.peaks().tolist()
        return [
            f"{count:,} outcomes of sets of {self.rule}, of {self.total_size / count:.3g} "
            "classes on average",
            f"coverage {hits / count:.1%}, at all times {low:.1%} to {high:.1%}; {promised}",
            told("the promise is broken", broken, self.broken_at),
            told("the scores of the labels changed", changed, self.changed_at),
        ]


def promise_of(sets: Mapping[str, Any], coverage: float | None) -> Promise:
    """The promise of sets, by the rule in their lines, and what their limits come from.

    Args:
        sets: `rule` and, if it has limits, `calibrated_on`.
        coverage: the coverage of sets that promise none; None for sets that promise one.

    Raises:
        UserError: there is no such rule, the coverage is missing or promised already, or it is not
            told what the limits come from.
    """
    text, numbers = sets["rule"], sets.get("calibrated_on")
    promised = rules.parse(text, "rule of --outcomes").rule.promise
    if promised is None and coverage is not None:
        return Promise(coverage, None)
    if promised is None:
        raise UserError(f"sets of {text} promise no coverage: give the --coverage to test")
    if coverage is not None:
        raise UserError(f"--coverage cannot be given with sets of {text}, which promise their own")
    if numbers is None:
        raise UserError(f"lines with sets of {text} need calibrated_on, as train.predict has it")
    on = CalibratedOn(numbers["examples"], numbers["groups"], "")
    return Promise(promised.coverage, on)


def _large(log_number: float) -> str:
    """A number of any size, by its logarithm."""
    power = f"1e{log_number / math.log(10):.0f}"
    return f"{math.exp(log_number):,.0f}" if log_number < 14 else power


def _numbers(given: Any) -> np.ndarray:
    """Numbers of a file, which has null for minus infinity."""
    return np.nan_to_num(np.array(given, float), nan=-math.inf)


def _thinned(points: np.ndarray) -> np.ndarray:
    """Points at multiples of the first one's number, which doubles until they are few."""
    step = points[0, 0] if len(points) else 1
    while len(points := points[points[:, 0] % step == 0]) > _MOST_POINTS:
        step *= 2
    return points


@jax.jit
def _updated(
    tests: _Tests, missed: jax.Array, scores: jax.Array, number: int
) -> tuple[_Tests, jax.Array]:
    """The tests after the first outcomes of a block, and the peaks after each, `[block, 2]`."""
    key = jax.random.key(_SEED)

    def step(tests: _Tests, given: tuple[jax.Array, ...]) -> tuple[_Tests, jax.Array]:
        missed, score, is_there = given
        # Each outcome has its own number, wherever a block starts.
        drawn = jax.random.uniform(jax.random.fold_in(key, tests.coverage.wealth.count))
        ranks, p_value = tests.ranks.update(score, uniform=drawn)
        after = _Tests(tests.coverage.update(missed), ranks, tests.change.update(p_value))
        kept = jax.tree.map(partial(jnp.where, is_there), after, tests)
        return kept, kept.peaks()

    return jax.lax.scan(step, tests, (missed, scores, jnp.arange(_BLOCK) < number))
