"""--sets=TEXT, the rule of sets of classes, and the short forms of three rules."""

from collections.abc import Callable
from typing import Any

from absl import flags

from train.foundation import kinds
from train.foundation.errors import UserError

# So that --help shows the flags as flags of the command.
flags.disclaim_key_flags()

_SHORT: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "top_k": (flags.DEFINE_multi_integer, kinds.COUNT, "the K classes of highest probability"),
    "average_k": (flags.DEFINE_multi_float, kinds.number(ge=1), "K classes on average"),
    "coverage": (
        flags.DEFINE_multi_float,
        kinds.number(gt=0, lt=1),
        "the true class with this probability",
    ),
}


def define(*, repeated: bool) -> Callable[..., list[str]]:
    """Defines the flags; returns a function that returns the texts of the rules in their order.

    The function takes `needed`, whether there must be a rule; by default, unless it is repeated.

    Args:
        repeated: whether there may be several rules, or none.
    """
    several = "May be given several times" if repeated else "Needed, or one of its short forms"
    sets = flags.DEFINE_multi_string(
        "sets",
        None,
        "The rule of the sets, such as coverage=0.9, rule=aps; docs/sets.md has all rules. "
        f"{several}.",
    )
    short = {
        name: define(name, None, f"Short for --sets={name}=NUMBER: sets of {words}.")
        for name, (define, _, words) in _SHORT.items()
    }

    def chosen(*, needed: bool = not repeated) -> list[str]:
        given = [(name, value) for name, flag in short.items() for value in flag.value or ()]
        for name, value in given:
            if wrong := kinds.wrong(value, _SHORT[name][1]):
                raise UserError(field=f"--{name}", must_be=wrong, got=value)
        texts = [*(sets.value or ()), *(f"{name}={value}" for name, value in given)]
        if (needed and not texts) or (not repeated and len(texts) > 1):
            flags_ = ", ".join(f"--{name}" for name in _SHORT)
            got = " and ".join(texts) or "none"
            raise UserError(f"one rule of sets is needed, by --sets, {flags_}; got {got}")
        return texts

    return chosen
