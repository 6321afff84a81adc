"""The flags --top_k, --average_k, --coverage, --max_error, --utility and --risk: one chooses sets.

--rule, --max_names, --allow_new, --new_score, --costs and --thresholds go with them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import flags

from train.evaluation import conformal_rules, utilities
from train.foundation import fields, flag_rules, flag_types
from train.foundation.flag_rules import Exclusive, Flag, Needed
from train.prediction import new_class_flags

# So that --help shows the flags as flags of the command.
flags.disclaim_key_flags()

MAX_ERROR = Flag("max_error", fields.Number(above=0, below=1))
_SETS = ("top_k", "average_k", "coverage", "max_error", "utility", "risk")
NAMES = (*_SETS, "rule", "max_names", "allow_new", "costs", "thresholds")
_RULES = (
    Needed(_SETS, "it chooses how sets are made"),
    Exclusive(_SETS),
    Flag("coverage", fields.Number(above=0, below=1)),
    MAX_ERROR,
    Flag("rule", needs=("coverage",), because="other sets have one rule"),
    Flag("allow_new", needs=("coverage",), because="it takes a part of the error"),
    new_class_flags.SCORE,
    Flag(
        "max_names",
        fields.integer(1),
        excludes=(f"rule={conformal_rules.TAXONOMIC}",),
        because="its sets have one name each",
    ),
    Flag("utility", utilities.wrong),
    Flag("risk", fields.Number(above=0)),
    Flag("risk", needs=("costs",), because="it is the mean cost of a set"),
    Flag("costs", fields.text(), needs=("risk",)),
    Flag(
        "thresholds",
        fields.text("a file"),
        needs=("average_k", "coverage", "max_error"),
        because="the file has no thresholds of other sets",
    ),
)


@dataclass(frozen=True)
class ChosenRule:
    """The rule that the flags choose.

    Attributes:
        name: "top_k", "average_k", "coverage", "max_error", "utility" or "risk".
        value: the K, the coverage, the error or the risk; the name of the utility.
        conformal: the name of the conformal rule that makes sets of a coverage.
        costs: the costs of the risk, as the flag has them; None for other rules.
        thresholds: a file with thresholds; None for the thresholds of the validation images.
        max_names: the most names of a set; None for sets of any classes.
        new_score: the name of the outlier score that says "none of these"; None for sets that
            cannot say that.
    """

    name: str
    value: float | str
    conformal: str = conformal_rules.DEFAULT
    costs: str | None = None
    thresholds: Path | None = None
    max_names: int | None = None
    new_score: str | None = None

    @property
    def is_calibrated(self) -> bool:
        """Whether its sets need examples to calibrate on."""
        return self.name not in ("top_k", "utility")

    @property
    def files(self) -> dict[Path, str]:
        """The files that it is read from, to be kept, with names for messages."""
        costs = None if self.costs is None else Path(self.costs)
        given = {"thresholds": self.thresholds, "costs": costs}
        return {path: f"the file of --{flag}" for flag, path in given.items() if path}


def define() -> Callable[[], dict[str, Any]]:
    """Defines the flags.

    Returns:
        A function that returns their values after they are parsed, by their names.
    """
    top_k = flag_types.define_integer("top_k", "Sets of the K classes of highest probability.")
    average_k = flags.DEFINE_float(
        "average_k", None, "Sets of K classes on average, calibrated on the validation images."
    )
    coverage = flags.DEFINE_float(
        "coverage",
        None,
        "Sets that have the true class with this probability, calibrated on the validation images.",
    )
    rule = flags.DEFINE_string(
        "rule",
        None,
        f"With --coverage: the conformal rule, by default {conformal_rules.DEFAULT}. "
        f"{conformal_rules.IN_WORDS}.",
    )
    max_names = flag_types.define_integer(
        "max_names",
        "Sets with at most this number of names, each a class or a group of classes, such as a "
        "genus: the smallest that contain the chosen sets.",
    )
    max_error = define_max_error()
    new = new_class_flags.define()
    utility = flags.DEFINE_string(
        "utility",
        None,
        f"Sets of the largest expected utility, from the probabilities only: {utilities.IN_WORDS}.",
    )
    risk = flags.DEFINE_float(
        "risk",
        None,
        "Sets that cost at most this on average, calibrated on the validation images; a set that "
        "has the true class costs nothing.",
    )
    costs = define_costs()
    thresholds = define_thresholds()
    return lambda: {
        "top_k": top_k.value,
        "average_k": average_k.value,
        "coverage": coverage.value,
        "rule": rule.value,
        "max_names": max_names.value,
        "max_error": max_error.value,
        **new(),
        "utility": utility.value,
        "risk": risk.value,
        "costs": costs.value,
        "thresholds": thresholds.value,
    }


def define_max_error() -> flags.FlagHolder[float | None]:
    """Defines --max_error."""
    return flags.DEFINE_float(
        "max_error",
        None,
        "Answers of one class, or none if the classifier is not sure enough: at most this share of "
        "the answers is wrong, calibrated on the validation images.",
    )


def define_thresholds() -> flags.FlagHolder[str | None]:
    """Defines --thresholds."""
    return flags.DEFINE_string(
        "thresholds",
        None,
        "A file of thresholds that train.evaluate --recalibrate=half --calibration_out=FILE wrote, "
        "used in place of thresholds from the validation images.",
    )


def define_costs() -> flags.FlagHolder[str | None]:
    """Defines --costs."""
    return flags.DEFINE_string(
        "costs",
        None,
        "The cost of a set without the true class: missed, 1 for each class, so that the mean is "
        "the share of missed labels; macro, with the same total for each class; or a table with "
        "the columns label and cost, and optionally chosen, a class of the set that makes it "
        "cheaper.",
    )


def chosen(values: Mapping[str, Any]) -> ChosenRule:
    """The only rule with a value.

    Raises:
        UserError: none has, or several have, a value is not what it may be, or a flag is missing
            that goes with it.
    """
    given = {name: value for name, value in values.items() if value is not None}
    flag_rules.check(_RULES, given)
    conformal = given.pop("rule", conformal_rules.DEFAULT)
    file = given.pop("thresholds", None)
    max_names = given.pop("max_names", None)
    new_score = new_class_flags.chosen(given.pop("allow_new", None), given.pop("new_score", None))
    costs = given.pop("costs", None)
    ((name, value),) = given.items()
    return ChosenRule(
        name,
        value,
        conformal_rules.named("rule", conformal).name,
        costs,
        None if file is None else Path(file),
        max_names,
        new_score,
    )
