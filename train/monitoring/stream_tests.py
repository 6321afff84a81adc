"""The tests of a stream of outcomes, by a compiled program for a block of them."""

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax.drift import CoverageTest, JumperMartingale, OnlineRanks
from train.monitoring.outcome_lines import Outcome

# Outcomes of one call.
_BLOCK = 256
# The scores of labels are 1 minus their probability, in intervals of this length, and _MISSED
# outside the set.
_INTERVALS = 64
_MISSED = 2.0
# The seed of the random numbers that smooth p-values; any constant would do.
_SEED = 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StreamTests:
    """The state of the tests after some outcomes.

    Attributes:
        coverage: whether more labels are missed than allowed.
        ranks: p-values of the scores of the labels, among all so far.
        change: whether these are uniform.
    """

    coverage: CoverageTest
    ranks: OnlineRanks
    change: JumperMartingale

    @staticmethod
    def start(allowed_error: float) -> "StreamTests":
        """The tests before any outcome."""
        edges = np.append(np.arange(1, _INTERVALS) / _INTERVALS, _MISSED).astype(np.float32)
        return StreamTests(
            CoverageTest.start(error=allowed_error),
            OnlineRanks.start(edges=edges),
            JumperMartingale.start(),
        )

    def update(self, outcomes: Sequence[Outcome]) -> tuple["StreamTests", np.ndarray]:
        """The tests after some more outcomes.

        Returns:
            The tests, and after each outcome the logarithms of the evidence so far that the
            promise is broken, and that the scores changed, `[outcomes, 2]`.
        """
        tests, evidence = self, [np.empty((0, 2), np.float32)]
        for begin in range(0, len(outcomes), _BLOCK):
            block = outcomes[begin : begin + _BLOCK]
            missed, scores = np.zeros(_BLOCK, bool), np.zeros(_BLOCK, np.float32)
            missed[: len(block)] = [outcome.missed for outcome in block]
            scores[: len(block)] = [_score(outcome) for outcome in block]
            tests, found = _update(tests, missed, scores, len(block))
            evidence.append(np.asarray(found)[: len(block)])
        return tests, np.concatenate(evidence)

    def to_plain(self) -> list[Any]:
        """The numbers, as JSON has them; null is minus infinity."""
        return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(self)]

    @staticmethod
    def from_plain(plain: Sequence[Any]) -> "StreamTests":
        """The tests from the result of `to_plain`.

        Raises:
            ValueError: it is the state of other tests.
        """
        like, tree = jax.tree.flatten(StreamTests.start(0.5))
        if len(like) != len(plain):
            raise ValueError("it has other tests")
        leaves = [_filled(given, leaf) for given, leaf in zip(plain, like, strict=True)]
        tests: StreamTests = jax.tree.unflatten(tree, leaves)
        return tests


def _filled(given: Any, like: jax.Array) -> jax.Array:
    numbers = given if isinstance(given, list) else [given]
    finite = [-math.inf if number is None else number for number in numbers]
    if len(finite) != like.size or not all(isinstance(one, int | float) for one in finite):
        raise ValueError("it has other tests")
    return jnp.array(finite, like.dtype).reshape(like.shape)


def _score(outcome: Outcome) -> float:
    if outcome.missed:
        return _MISSED
    # Without a probability, only what is missed is compared.
    return 0.0 if outcome.probability is None else 1.0 - outcome.probability


@jax.jit
def _update(
    tests: StreamTests, missed: jax.Array, scores: jax.Array, number: int
) -> tuple[StreamTests, jax.Array]:
    key = jax.random.key(_SEED)

    def step(tests: StreamTests, given: tuple[jax.Array, ...]) -> tuple[StreamTests, jax.Array]:
        missed, score, is_there = given
        # Each outcome has its own number, wherever a block starts.
        drawn = jax.random.uniform(jax.random.fold_in(key, tests.coverage.wealth.count))
        ranks, p_value = tests.ranks.update(score, uniform=drawn)
        after = StreamTests(tests.coverage.update(missed), ranks, tests.change.update(p_value))
        kept = jax.tree.map(partial(jnp.where, is_there), after, tests)
        return kept, jnp.stack([kept.coverage.wealth.log_peak, kept.change.wealth.log_peak])

    return jax.lax.scan(step, tests, (missed, scores, jnp.arange(_BLOCK) < number))
