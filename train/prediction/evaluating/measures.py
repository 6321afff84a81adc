"""What an evaluation measures, as the flags ask for it."""

from collections.abc import Sequence
from dataclasses import dataclass

from train.evaluation import combinations
from train.evaluation.conformal_rules import ConformalRule
from train.foundation import fields
from train.foundation.errors import UserError

_USUAL_KS = (1, 3, 5)


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What is measured.

    Attributes:
        ks: the sizes, and the mean sizes, of sets; empty for the usual ones.
        coverages: the coverages of sets, which may be none; None for the usual ones.
        rules: the conformal rules that are compared.
        are_rules_optional: whether a rule that cannot be calibrated is left out, not refused.
        utilities: utilities whose best sets are measured.
        risks: bounds of the mean cost of sets.
        costs: these costs, as --costs has them; None without risks.
        combined_by: how the examples of an observation are combined.
        max_error: the share of answers of one class that may be wrong; None without such answers.
        new_score: the outlier score that says "none of these"; None for sets that do not say that.
    """

    ks: Sequence[int] = ()
    coverages: Sequence[float] | None = None
    rules: Sequence[ConformalRule] = ()
    are_rules_optional: bool = False
    utilities: Sequence[str] = ()
    risks: Sequence[float] = ()
    costs: str | None = None
    combined_by: str = combinations.DEFAULT
    max_error: float | None = None
    new_score: str | None = None

    def ks_of(self, num_classes: int, usual: Sequence[int] = _USUAL_KS) -> list[int]:
        """The sizes of sets of that number of classes, or the usual ones that there can be.

        Raises:
            UserError: a size is above the number of classes.
        """
        if not self.ks:
            return [k for k in usual if k <= num_classes]
        is_size = fields.integer(1, num_classes, "the number of classes")
        for k in self.ks:
            if wrong := is_size(k):
                must_be = f"numbers between commas, each {wrong}"
                raise UserError(field="--ks", must_be=must_be, got=str(k))
        return [*self.ks]
