"""The flags --allow_new and --new_score: sets that may say "none of these"."""

from collections.abc import Callable
from typing import Any

from absl import flags

from train.evaluation import outlier_scores
from train.foundation import fields
from train.foundation.flag_rules import Flag

# So that --help shows the flags as flags of the command.
flags.disclaim_key_flags()

SCORE = Flag("new_score", fields.one_of(outlier_scores.SCORES), needs=("allow_new",))


def define() -> Callable[[], dict[str, Any]]:
    """Defines the two flags.

    Returns:
        A function that returns their values after they are parsed, by their names; None for those
        that are not given.
    """
    allow_new = flags.DEFINE_boolean(
        "allow_new",
        False,
        "whether a set may have 'none of these', instead of classes or beside them.",
    )
    new_score = flags.DEFINE_string(
        "new_score",
        None,
        f"how unusual an example is, by default {outlier_scores.DEFAULT}. "
        f"{outlier_scores.IN_WORDS}.",
    )
    return lambda: {"allow_new": allow_new.value or None, "new_score": new_score.value}


def chosen(allow_new: bool | None, new_score: str | None) -> str | None:
    """The name of the outlier score; None without --allow_new."""
    return (new_score or outlier_scores.DEFAULT) if allow_new else None
