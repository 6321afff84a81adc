"""What a monitor holds sets to: the coverage that they promise, and what is allowed beyond it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scipy import stats

from train.evaluation import combinations, evaluated, named_costs, promises, thresholds
from train.evaluation.conformal_rules import DEFAULT, RULES
from train.evaluation.promises import CalibratedOn
from train.foundation.errors import UserError

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
        on = self.calibrated_on
        law = None if on is None else on.law(self.coverage)
        if law is None:
            return float(thresholds.error_of(self.coverage))
        covered, missed = law
        return float(stats.beta.ppf(1 - self.delta / _CAUSES, missed, covered))


def of_rule(
    results: Mapping[str, Any],
    kept: Mapping[str, Any],
    rule: str,
    *,
    coverage: float | None,
    calibrated_on: int | None,
    delta: float,
) -> Promise:
    """The promise of sets of a rule, by the results of its run, what it keeps, and the flags."""
    parts = dict(part.partition("=")[::2] for part in rule.split(", "))
    # The mean of these costs is the share of missed labels.
    is_risk = parts.get("costs") == named_costs.MISSED
    text = parts.get("risk" if is_risk else "coverage")
    if text is None:
        if coverage is None:
            raise UserError(f"sets of {rule} promise no coverage: give the --coverage to test")
        return Promise(results["parameters_digest"], rule, delta, coverage)
    if coverage is not None:
        raise UserError(f"--coverage cannot be given with sets of {rule}, which promise their own")
    try:
        asked = 1 - float(text) if is_risk else float(text)
    except ValueError:
        asked = math.nan
    if not 0 < asked < 1:
        raise UserError(f"sets must be of a coverage from 0 to 1; they are of {rule!r}")
    combined_by = parts.get("combine")
    numbers = kept.get(combinations.name_in_files(promises.KEPT_AS, combined_by))
    if calibrated_on is not None:
        numbers = [calibrated_on] * 2
    elif numbers is None and combined_by is None:
        numbers = [evaluated.num_examples(results["evaluated"]["validation"])] * 2
    elif numbers is None:
        raise UserError(
            f"--calibrated_on is needed with sets of {rule}: the number of observations that "
            "they are calibrated on"
        )
    on = CalibratedOn.from_plain(numbers)
    promised = promises.promised(asked, RULES.get(parts.get("rule", DEFAULT), RULES[DEFAULT]))
    return Promise(results["parameters_digest"], rule, delta, promised, on)
