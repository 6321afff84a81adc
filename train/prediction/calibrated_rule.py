"""The rule that makes sets of a classifier's probabilities, as the command line chooses it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
from absl import flags

from train.evaluation import set_rules
from train.foundation.errors import UserError
from train.prediction.calibration import Calibration
from train.prediction.trained import TrainedClassifier

# So that --help shows the flags as those of the command.
flags.disclaim_key_flags()

_CHOICES = "--top_k, --average_k or --coverage"


@dataclass(frozen=True)
class CalibratedRule:
    """A rule, with its threshold if it has one.

    Attributes:
        name: "top_k", "average_k" or "coverage".
        value: the K or the coverage.
        threshold: the probability that a class in the set reaches; None for the top K.
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
        """What is in a set, and why, in a sentence."""
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
                "images: more where the picture is ambiguous, fewer where it is clear."
            )
        return reached + (
            "With this threshold, from the validation images, the true class of a new image like "
            f"them is in its set with a probability of at least {100 * self.value:.10g}%."
        )


def define_flags() -> Callable[[], Callable[[TrainedClassifier], CalibratedRule]]:
    """Defines the three flags.

    Returns:
        A function that checks the flags once they are parsed, as far as it can without the
        classifier, and returns one that makes the rule for a classifier.
    """
    top_k = flags.DEFINE_integer("top_k", None, "Sets of the K classes of highest probability.")
    average_k = flags.DEFINE_float(
        "average_k", None, "Sets of K classes on average, calibrated on the validation images."
    )
    coverage = flags.DEFINE_float(
        "coverage",
        None,
        "Sets that have the true class with this probability, calibrated on the validation images.",
    )
    return lambda: chosen(
        {"top_k": top_k.value, "average_k": average_k.value, "coverage": coverage.value}
    )


def chosen(values: dict[str, float | None]) -> Callable[[TrainedClassifier], CalibratedRule]:
    """The one rule that has a value, to be calibrated for a classifier.

    Raises:
        UserError: none has, or several have, or a coverage is outside (0, 1). What is returned
            raises it for a K that the classifier cannot have, and where calibration is impossible.
    """
    given = {name: value for name, value in values.items() if value is not None}
    if not given:
        raise UserError(f"one of {_CHOICES} is needed: it says which sets are made")
    if len(given) > 1:
        names = " and ".join(f"--{name}" for name in given)
        raise UserError(f"only one of {_CHOICES} can be given; got {names}")
    ((name, value),) = given.items()
    if name == "coverage" and not 0 < value < 1:
        raise UserError(f"--coverage must lie between 0 and 1, without the ends; got {value}")
    return lambda classifier: _calibrate(classifier, name, value)


def _calibrate(classifier: TrainedClassifier, name: str, value: float) -> CalibratedRule:
    if name == "coverage":
        return CalibratedRule(name, value, Calibration(classifier).conformal(value))
    num_classes = classifier.num_classes
    if not 1 <= value <= num_classes:
        raise UserError(
            f"--{name} must be from 1 to {num_classes}, the number of classes; got {value}"
        )
    threshold = Calibration(classifier).average_k(value) if name == "average_k" else None
    return CalibratedRule(name, value, threshold)
