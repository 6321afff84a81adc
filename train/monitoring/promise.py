"""What a monitor holds sets to: the coverage that they promise, and what is allowed beyond it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topk_jax.rules import CalibratedOn
from topk_jax.rules import Promise as Coverage
from train.foundation.errors import UserError
from train.reports import promises, rules

# The causes of a false alarm, each with the same probability: a calibration that happened to miss
# more than allowed, outcomes that did, and scores that seem to change.
_CAUSES = 3


@dataclass(frozen=True)
class Promise:
    """That sets of a rule of a run have their label with a probability, their coverage.

    The run is the digest of its parameters, and delta the probability of a false alarm. Sets that
    promise nothing are not calibrated.
    """

    run: str
    rule: str
    delta: float
    coverage: float
    calibrated_on: CalibratedOn | None = None

    @property
    def log_needed(self) -> float:
        """The logarithm of the evidence for an alarm."""
        return math.log(_CAUSES / self.delta)

    def allowed_error(self) -> float:
        """The part of labels that may be missed: a large quantile over calibrations."""
        promised = Coverage(self.coverage, self.calibrated_on)
        return promises.allowed_error(promised, self.delta / _CAUSES)


def of_sets(sets: Mapping[str, Any], run: str, *, coverage: float | None, delta: float) -> Promise:
    """The promise of sets, by the rule in their lines, and what their limits come from.

    Args:
        sets: `rule` and, if it has limits, `calibrated_on`.
        run: the digest of the parameters.
        coverage: the coverage of sets that promise none; None for sets that promise one.
        delta: the probability of a false alarm.

    Raises:
        UserError: there is no such rule, it promises no coverage and none is given, or both; or it
            is not told what the limits come from.
    """
    text, numbers = sets["rule"], sets.get("calibrated_on")
    promised = rules.parse(text, "rule").promise
    if promised is None:
        if coverage is None:
            raise UserError(f"sets of {text} promise no coverage: give the --coverage to test")
        return Promise(run, text, delta, coverage)
    if coverage is not None:
        raise UserError(f"--coverage cannot be given with sets of {text}, which promise their own")
    if numbers is None:
        raise UserError(f"lines with sets of {text} need calibrated_on, as train.predict has it")
    on = CalibratedOn(numbers["examples"], numbers["groups"], "")
    return Promise(run, text, delta, promised.coverage, on)
