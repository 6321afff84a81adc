"""The rule that turns the probabilities of a classifier into sets, with its threshold."""

import math
from dataclasses import dataclass

import jax

from train.evaluation import set_rules, thresholds
from train.evaluation.conformal_rules import RULES
from train.evaluation.conformal_sets import ConformalSets
from train.foundation.errors import UserError
from train.prediction.calibration import Calibration
from train.prediction.other_calibrations import GivenCalibration
from train.prediction.rule_flags import ChosenRule
from train.prediction.trained import TrainedClassifier

# What thresholds are calibrated on by default, in words.
VALIDATION = "the validation examples"


@dataclass(frozen=True)
class CalibratedRule:
    """A rule and its threshold.

    Attributes:
        name: "top_k", "average_k" or "coverage".
        value: the K or the coverage.
        threshold: the smallest probability of a class in a set; None for the top K, and for the
            sets of a conformal score.
        conformal: the sets of a conformal score; None for others.
        calibrated_on: the examples that the threshold is calibrated on, in words.
    """

    name: str
    value: float
    threshold: float | None
    conformal: ConformalSets | None = None
    calibrated_on: str = VALIDATION

    def __str__(self) -> str:
        rule = "" if self.conformal is None else f", rule={self.conformal.rule.name}"
        return f"{self.name}={self.short_value}{rule}"

    @property
    def short_value(self) -> str:
        """The value as a person writes it: 5 for 5.0."""
        return repr(self.value).removesuffix(".0")

    def choose(self, probabilities: jax.Array) -> jax.Array:
        """The sets of probabilities [n, L], as booleans [n, L]."""
        if self.conformal is not None:
            # One example at a time: in an exported program, their number is not known.
            return jax.vmap(self.conformal)(probabilities)
        if self.threshold is None:
            return set_rules.top_k(int(self.value))(probabilities)
        return set_rules.at_threshold(self.threshold)(probabilities)

    def in_words(self) -> str:
        """A sentence that explains which classes are in a set."""
        if self.conformal is not None:
            return _describe_conformal(self.conformal, self.value, self.calibrated_on)
        if self.threshold is None:
            what = "class" if self.value == 1 else f"{self.short_value} classes"
            return f"Each set has the {what} of highest probability."
        if self.threshold == -math.inf:
            return "Each set has every class."
        reached = f"Each set has the classes whose probability reaches {self.threshold:.4g}. "
        if self.name == "average_k":
            return reached + (
                f"With this threshold, sets have {self.short_value} "
                f"{'class' if self.value == 1 else 'classes'} on average over "
                f"{self.calibrated_on}: more where one is ambiguous, fewer where it is clear."
            )
        return reached + (
            f"With this threshold, from {self.calibrated_on}, the true class of a new one like "
            f"them is in its set with a probability of at least {_percent(self.value)}."
        )


def calibrate(classifier: TrainedClassifier, rule: ChosenRule) -> CalibratedRule:
    """Calibrates a rule for a classifier.

    Raises:
        UserError: the classifier cannot have that K, or cannot be calibrated.
    """
    name, value = rule.name, rule.value
    if name == "coverage":
        return _calibrate_conformal(classifier, rule)
    num_classes = classifier.num_classes
    if not 1 <= value <= num_classes:
        raise UserError(
            field=f"--{name}", must_be=f"from 1 to {num_classes}, the number of classes", got=value
        )
    if name == "top_k":
        return CalibratedRule(name, value, None)
    calibration, calibrated_on = _calibration(classifier, rule)
    return CalibratedRule(name, value, calibration.average_k(value), calibrated_on=calibrated_on)


def _calibration(classifier: TrainedClassifier, rule: ChosenRule) -> tuple[Calibration, str]:
    """The thresholds, and the examples that they are calibrated on, in words."""
    if rule.thresholds is None:
        return Calibration(classifier), VALIDATION
    given = GivenCalibration(classifier, rule.thresholds)
    return given, given.calibrated_on


def _calibrate_conformal(classifier: TrainedClassifier, chosen: ChosenRule) -> CalibratedRule:
    name, coverage, rule = chosen.name, chosen.value, RULES[chosen.conformal]
    calibration, calibrated_on = _calibration(classifier, chosen)
    if rule.score is None:
        threshold = calibration.conformal(coverage)
        return CalibratedRule(name, coverage, threshold, calibrated_on=calibrated_on)
    sets = calibration.conformal_sets(coverage, rule)
    return CalibratedRule(name, coverage, None, sets, calibrated_on)


def _describe_conformal(conformal: ConformalSets, coverage: float, calibrated_on: str) -> str:
    """Which classes are in a set, what a score is, and what is promised."""
    rule = conformal.rule
    promised = _percent(coverage)
    if rule.quantile == "all":
        limit, these = f"{conformal.limits:.4g}", "this limit"
    else:
        limit, these = "the limit of the class", "these limits"
    if rule.quantile == "middle":
        error = thresholds.error_of(coverage)
        promised = _percent(max(0.0, float(1 - 2 * error)))
    among = {
        "classes": ", whichever class it is",
        # Such a class has the limit of all examples, which may be too low for this class.
        "clusters": ", if that class had enough of these examples to be in a cluster",
    }
    words = (
        f"Each set has the classes whose score is at most {limit}. The score of a class is "
        f"{rule.score_in_words}. With {these}, from {calibrated_on}, the true class of a "
        f"new one like them is in its set with a probability of at least {promised}"
        f"{among.get(rule.quantile, '')}."
    )
    number = conformal.num_in_every_set
    if number == 0:
        return words
    classes = "1 class has" if number == 1 else f"{number:,} classes have"
    verb = "is" if number == 1 else "are"
    few = "validation examples" if calibrated_on == VALIDATION else "of these examples"
    return f"{words} {classes} too few {few} for that and {verb} in every set."


def _percent(share: float) -> str:
    return f"{100 * share:.10g}%"
