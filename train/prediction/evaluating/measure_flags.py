"""The flags that choose what is measured, as --ks, --coverages, --rules, --utility and --risks."""

from collections.abc import Callable
from typing import Any

from absl import flags

from train.evaluation import combinations, conformal_rules, utilities
from train.evaluation.conformal_rules import ConformalRule
from train.foundation import fields
from train.foundation.errors import UserError
from train.foundation.flag_rules import Flag, Row, Together
from train.prediction import new_class_flags, rule_flags
from train.prediction.evaluating.measures import Measures

# So that --help shows the flags as flags of the command.
flags.disclaim_key_flags()

_ALL = "all"
ROWS: tuple[Row, ...] = (
    rule_flags.MAX_ERROR,
    Flag(
        "allow_new",
        needs=("workdir", "features_run", "weights"),
        excludes=("coverages=",),
        because="it needs a network and a coverage",
    ),
    new_class_flags.SCORE,
    Flag("combine", fields.one_of(combinations.COMBINATIONS)),
    Flag("rules", excludes=("coverages=",), because="a rule needs a coverage"),
    Flag("costs", fields.text("a file")),
    Together(("risks", "costs")),
)


def define() -> Callable[[], Measures]:
    """Defines the flags.

    Returns:
        A function that returns what they ask for, after they are parsed; it raises UserError if
        one is not what it may be.
    """
    ks = flags.DEFINE_string(
        "ks",
        None,
        "Sizes, and mean sizes, of sets, as 1,5; by default those of the run, with --scores 1, 3 "
        "and 5 as far as there are enough classes.",
    )
    coverages = flags.DEFINE_string(
        "coverages",
        None,
        "The coverages to calibrate sets for; may be empty. By default 0.8, 0.9 and "
        "0.95, as far as there are enough examples to calibrate on.",
    )
    rules = flags.DEFINE_list(
        "rules",
        None,
        "Conformal rules that are compared at each of --coverages, with commas between, or all. "
        f"{conformal_rules.IN_WORDS}.",
    )
    utility = flags.DEFINE_multi_string(
        "utility",
        [],
        "A utility whose best sets are evaluated; may be given several times. "
        f"{utilities.IN_WORDS}.",
    )
    risks = flags.DEFINE_string(
        "risks", None, "Bounds of the mean cost of sets, as 0.1,0.2, by the costs of --costs."
    )
    costs = rule_flags.define_costs()
    max_error = rule_flags.define_max_error()
    new_classes = new_class_flags.define()
    combine = flags.DEFINE_string(
        "combine",
        None,
        "How the examples of an observation are combined, if the split has groups; by "
        f"default {combinations.DEFAULT}. {combinations.IN_WORDS}.",
    )
    return lambda: Measures(
        rules=_named_rules(rules.value or []),
        are_rules_optional=rules.value == [_ALL],
        utilities=_checked_utilities(utility.value),
        risks=_numbers(risks, float, fields.Number(above=0)) or (),
        coverages=(
            ()
            if coverages.value == ""
            else _numbers(coverages, float, fields.Number(above=0, below=1))
        ),
        ks=_numbers(ks, int, fields.integer(1)) or (),
        costs=costs.value,
        combined_by=combine.value or combinations.DEFAULT,
        max_error=max_error.value,
        new_score=new_class_flags.chosen(**new_classes()),
    )


def _named_rules(names: list[str]) -> list[ConformalRule]:
    if names == [_ALL]:
        return list(conformal_rules.RULES.values())
    if _ALL in names:
        raise UserError("--rules must be all, or rules with commas between; got both")
    return [conformal_rules.named("rules", name) for name in dict.fromkeys(names)]


def _checked_utilities(given: list[str]) -> list[str]:
    for text in given:
        if wrong := utilities.wrong(text):
            raise UserError(field="--utility", must_be=wrong, got=text)
    return list(dict.fromkeys(given))


def _numbers(
    flag: flags.FlagHolder[str | None], read: type, field: fields.Field
) -> list[Any] | None:
    """The numbers of a flag, between commas; None if it is not given."""
    if flag.value is None:
        return None
    values = []
    for text in flag.value.split(","):
        try:
            value = read(text)
        except ValueError:
            value = text
        if wrong := field(value):
            raise UserError(
                field=f"--{flag.name}", must_be=f"numbers between commas, each {wrong}", got=text
            )
        values.append(value)
    return sorted(set(values))
