"""What is measured on given examples: coverages that they suffice for, rules, costs."""

from collections.abc import Callable, Sequence

import numpy as np

from train.data.taxonomy import ClassTree
from train.evaluation import conformal_sets, named_costs, new_classes, thresholds
from train.evaluation.conformal_rules import ConformalRule
from train.evaluation.costs import Costs
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError
from train.prediction.evaluating.measures import Measures

_USUAL_COVERAGES = (0.8, 0.9, 0.95)


def coverages(measures: Measures, num_examples: int) -> list[float]:
    """The coverages, or the usual ones for which this number of examples suffices."""
    return _coverages(measures, num_examples, thresholds.fewest_examples)


def coverages_with_new(measures: Measures, num_examples: int) -> list[float]:
    """The same for sets that may say "none of these".

    Raises:
        UserError: the examples suffice for none.
    """
    chosen = _coverages(measures, num_examples, new_classes.fewest_examples)
    if not chosen:
        new_classes.check_enough(num_examples, min(_USUAL_COVERAGES))
    return chosen


def _coverages(
    measures: Measures, num_examples: int, fewest_examples: Callable[[float], int]
) -> list[float]:
    if measures.coverages is None:
        return [one for one in _USUAL_COVERAGES if num_examples >= fewest_examples(one)]
    return [*measures.coverages]


def rules(
    measures: Measures,
    predictions: Sequence[Predictions],
    class_counts: np.ndarray | None,
    tree: ClassTree | None,
) -> list[ConformalRule]:
    """The rules, for all predictions that they are calibrated and measured on.

    Raises:
        UserError: a rule cannot be calibrated on them, and is not optional.
    """
    chosen = []
    for rule in measures.rules:
        reasons = (
            conformal_sets.why_not(rule, given.scores, class_counts, tree) for given in predictions
        )
        reason = next(filter(None, reasons), None)
        if reason is None:
            chosen.append(rule)
        elif not measures.are_rules_optional:
            raise UserError(f"--rules: {reason}")
    return chosen


def costs(
    measures: Measures,
    class_names: Sequence[str],
    class_counts: np.ndarray | None,
    tree: ClassTree | None,
) -> Costs | None:
    """The costs of the risks; None without risks."""
    if measures.costs is None:
        return None
    return named_costs.named(measures.costs, class_names, class_counts, tree)
