"""The rule that turns the probabilities of a classifier into sets, with its threshold."""

import math
from dataclasses import dataclass

import jax

from train.evaluation import set_rules
from train.foundation.errors import UserError
from train.prediction.calibration import Calibration
from train.prediction.rule_flags import ChosenRule
from train.prediction.trained import TrainedClassifier


@dataclass(frozen=True)
class CalibratedRule:
    """A rule and its threshold.

    Attributes:
        name: "top_k", "average_k" or "coverage".
        value: the K or the coverage.
        threshold: the smallest probability of a class in a set; None for the top K.
    """

    name: str
    value: float
    threshold: float | None

    def __str__(self) -> str:
        return f"{self.name}={self.short_value}"

    @property
    def short_value(self) -> str:
        """The value as a person writes it: 5 for 5.0."""
        return repr(self.value).removesuffix(".0")

    def choose(self, probabilities: jax.Array) -> jax.Array:
        """The sets of probabilities [n, L], as booleans [n, L]."""
        if self.threshold is None:
            return set_rules.top_k(int(self.value))(probabilities)
        return set_rules.at_threshold(self.threshold)(probabilities)

    def in_words(self) -> str:
        """A sentence that says which classes are in a set, and why."""
        if self.threshold is None:
            what = "class" if self.value == 1 else f"{self.short_value} classes"
            return f"Each set has the {what} of highest probability."
        if self.threshold == -math.inf:
            return "Each set has every class."
        reached = f"Each set has the classes whose probability reaches {self.threshold:.4g}. "
        if self.name == "average_k":
            return reached + (
                f"With this threshold, sets have {self.short_value} "
                f"{'class' if self.value == 1 else 'classes'} on average over the validation "
                "examples: more where one is ambiguous, fewer where it is clear."
            )
        return reached + (
            "With this threshold, from the validation examples, the true class of a new one like "
            f"them is in its set with a probability of at least {100 * self.value:.10g}%."
        )


def calibrate(classifier: TrainedClassifier, rule: ChosenRule) -> CalibratedRule:
    """Calibrates a rule for a classifier.

    Raises:
        UserError: the classifier cannot have that K, or cannot be calibrated.
    """
    name, value = rule.name, rule.value
    if name == "coverage":
        return CalibratedRule(name, value, Calibration(classifier).conformal(value))
    num_classes = classifier.num_classes
    if not 1 <= value <= num_classes:
        raise UserError(
            f"--{name} must be from 1 to {num_classes}, the number of classes; got {value}"
        )
    threshold = Calibration(classifier).average_k(value) if name == "average_k" else None
    return CalibratedRule(name, value, threshold)
