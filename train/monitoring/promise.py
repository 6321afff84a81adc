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
    """The promise of the sets of one rule of a run.

    Attributes:
        run: the digest of the parameters of the run.
        rule: the rule, as train.predict writes it.
        coverage: the probability that a set has the label.
        calibrated_on: the number of examples that the sets are calibrated on; None for sets that
            are not calibrated for a coverage.
        delta: the probability of a false alarm.
        groups: how many independent examples these say as much as; None for their number.
    """

    run: str
    rule: str
    coverage: float
    calibrated_on: int | None
    delta: float
    groups: float | None = None

    @property
    def log_needed(self) -> float:
        """The logarithm of the evidence for an alarm."""
        return math.log(_CAUSES / self.delta)

    @property
    def independent(self) -> int | None:
        """How many independent examples the sets are calibrated on, to the next integer."""
        return self.calibrated_on if self.groups is None else round(self.groups)

    def allowed_error(self) -> float:
        """The part of labels that may be missed.

        The labels that a threshold misses, calibrated on n examples, have a part that varies from
        calibration to calibration: by a beta distribution, whose large quantile is allowed.
        """
        law = None
        if (number := self.calibrated_on) is not None:
            law = CalibratedOn(number, self.groups or number).law(self.coverage)
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
    """The promise of the sets of a rule.

    Args:
        results: the results of the run.
        kept: the thresholds that the run keeps.
        rule: the rule, as train.predict writes it.
        coverage: the coverage that sets without a promise are held to; None for sets with a
            promise.
        calibrated_on: the number of examples, or of groups of these, that the sets are calibrated
            on, if they are not the validation examples.
        delta: the probability of a false alarm.

    Raises:
        UserError: the sets promise nothing and no coverage is given, or the other way round, or the
            number of examples is needed.
    """
    digest = results["parameters_digest"]
    parts = dict(part.partition("=")[::2] for part in rule.split(", "))
    if parts.get("costs") == named_costs.MISSED:
        # The mean cost is the share of missed labels.
        parts = {**parts, "coverage": str(1 - _number(parts.get("risk", "")))}
    if "coverage" not in parts:
        if coverage is None:
            raise UserError(f"sets of {rule} promise no coverage: give the --coverage to test")
        return Promise(digest, rule, coverage, None, delta)
    if coverage is not None:
        raise UserError(f"--coverage cannot be given with sets of {rule}, which promise their own")
    asked = _number(parts["coverage"])
    if not 0 < asked < 1:
        raise UserError(f"sets must be of a coverage from 0 to 1; they are of {rule!r}")
    promised = promises.promised(asked, RULES.get(parts.get("rule", DEFAULT), RULES[DEFAULT]))
    if calibrated_on is not None:
        return Promise(digest, rule, promised, calibrated_on, delta)
    combined_by = parts.get("combine")
    if (numbers := kept.get(combinations.name_in_files(promises.KEPT_AS, combined_by))) is not None:
        on = CalibratedOn.from_plain(numbers)
        groups = None if on.groups == on.examples else on.groups
        return Promise(digest, rule, promised, on.examples, delta, groups)
    if combined_by is not None:
        raise UserError(
            f"--calibrated_on is needed with sets of {rule}: the number of observations that "
            "they are calibrated on"
        )
    # A run without groups, or of an earlier version.
    number = evaluated.num_examples(results["evaluated"]["validation"])
    return Promise(digest, rule, promised, number, delta)


def _number(text: str) -> float:
    """The number that a text is; NaN for another text."""
    try:
        return float(text)
    except ValueError:
        return math.nan
