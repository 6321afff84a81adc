"""The flags --allow_new, --new_error and --new_score: sets that may say "none of these"."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from absl import flags

from train.evaluation import outlier_scores
from train.foundation import fields
from train.foundation.errors import UserError
from train.foundation.flag_rules import Flag

# So that --help shows the flags as flags of the command.
flags.disclaim_key_flags()


@dataclass(frozen=True)
class ChosenNewClasses:
    """What the flags say about classes that a classifier does not know.

    Attributes:
        score: the name of the outlier score.
        error: the part of the error of a coverage for "none of these"; None for half of it.
    """

    score: str
    error: float | None = None

    def error_of(self, coverage: float) -> float:
        """The part of the error of a coverage.

        Raises:
            UserError: it is not a part of it.
        """
        whole = 1 - Decimal(repr(coverage))
        if self.error is None:
            return float(whole / 2)
        if Decimal(repr(self.error)) >= whole:
            raise UserError(
                field="--new_error",
                must_be=f"less than {whole}, the error of a coverage of {coverage}",
                got=self.error,
            )
        return self.error

    def coverage_of_classes(self, coverage: float) -> float:
        """The coverage of the classes, which have the rest of the error."""
        return float(Decimal(repr(coverage)) + Decimal(repr(self.error_of(coverage))))


def rows(needs: tuple[str, ...]) -> tuple[Flag, ...]:
    """The rows of the flags.

    Args:
        needs: flags, one of which goes with --allow_new.
    """
    return (
        Flag("allow_new", needs=needs, because="other sets have no error of which it is a part"),
        Flag("new_error", fields.Number(above=0, below=1), needs=("allow_new",)),
        Flag("new_score", fields.one_of(outlier_scores.SCORES), needs=("allow_new",)),
    )


def define() -> Callable[[], dict[str, Any]]:
    """Defines the three flags.

    Returns:
        A function that returns their values after they are parsed, by their names.
    """
    holders: tuple[flags.FlagHolder[Any], ...] = (
        flags.DEFINE_boolean(
            "allow_new",
            False,
            "whether a set may say that an example is of none of the classes, instead of them or "
            "beside them.",
        ),
        flags.DEFINE_float(
            "new_error",
            None,
            "the part of the error, 1 less the coverage, that is for this; by default half of it.",
        ),
        flags.DEFINE_string(
            "new_score",
            None,
            f"how unusual an example is, by default {outlier_scores.DEFAULT}. "
            f"{outlier_scores.IN_WORDS}.",
        ),
    )
    return lambda: {holder.name: holder.value or None for holder in holders}


def chosen(values: Mapping[str, Any]) -> ChosenNewClasses | None:
    """What checked values of the flags say; None without --allow_new."""
    if not values.get("allow_new"):
        return None
    return ChosenNewClasses(
        values.get("new_score") or outlier_scores.DEFAULT, values.get("new_error")
    )
