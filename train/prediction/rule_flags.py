"""The flags --top_k, --average_k and --coverage, one of which chooses the sets, and --rule."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from absl import flags

from train.evaluation import conformal_rules
from train.foundation import flag_types
from train.foundation.errors import UserError

# So that --help shows the flags as flags of the command.
flags.disclaim_key_flags()

_FLAGS = "--top_k, --average_k or --coverage"


@dataclass(frozen=True)
class ChosenRule:
    """The rule that the flags choose.

    Attributes:
        name: "top_k", "average_k" or "coverage".
        value: the K or the coverage.
        conformal: the name of the conformal rule that makes sets of a coverage.
    """

    name: str
    value: float
    conformal: str = conformal_rules.DEFAULT


def define() -> Callable[[], dict[str, Any]]:
    """Defines the four flags.

    Returns:
        A function that returns their values after they are parsed, by their names.
    """
    top_k = flag_types.define_whole_number("top_k", "Sets of the K classes of highest probability.")
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
    return lambda: {
        "top_k": top_k.value,
        "average_k": average_k.value,
        "coverage": coverage.value,
        "rule": rule.value,
    }


def chosen(values: Mapping[str, Any]) -> ChosenRule:
    """The only rule with a value.

    Raises:
        UserError: none has, or several have, a coverage is outside (0, 1), or --rule is unknown or
            given without a coverage.
    """
    given = {name: value for name, value in values.items() if value is not None}
    conformal = given.pop("rule", None)
    if not given:
        raise UserError(f"one of {_FLAGS} is needed: it says which sets are made")
    if len(given) > 1:
        names = " and ".join(f"--{name}" for name in given)
        raise UserError(f"only one of {_FLAGS} can be given; got {names}")
    ((name, value),) = given.items()
    if name == "coverage" and not 0 < value < 1:
        raise UserError(f"--coverage must lie between 0 and 1, without the ends; got {value}")
    if conformal is None:
        return ChosenRule(name, value)
    if name != "coverage":
        raise UserError(f"--rule goes with --coverage: --{name} is a rule of its own")
    return ChosenRule(name, value, conformal_rules.named("rule", conformal).name)
