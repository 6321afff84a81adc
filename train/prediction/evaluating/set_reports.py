"""The report of examples with thresholds that other examples calibrate."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from train.data.taxonomy import ClassTree
from train.evaluation import selective
from train.evaluation.set_report import set_report
from train.prediction.evaluating import choices
from train.prediction.evaluating.halving import Division
from train.prediction.evaluating.measures import Measures


def report(
    division: Division,
    measures: Measures,
    *,
    ks: Sequence[int],
    class_counts: np.ndarray | None,
    class_names: Sequence[str] | None,
    tree: ClassTree | None,
) -> dict[str, Any]:
    """What is measured on the examples that are evaluated; see `set_report`."""
    evaluated, calibrating = division.evaluated, division.calibrating
    num_classes = evaluated.scores.shape[-1]
    names = class_names or [str(index) for index in range(num_classes)]
    return set_report(
        evaluated,
        calibrating,
        ks=ks,
        coverages=choices.coverages(measures, len(calibrating.labels)),
        class_counts=class_counts,
        rules=choices.rules(measures, (evaluated, calibrating), class_counts, tree),
        are_rules_optional=measures.are_rules_optional,
        utilities=measures.utilities,
        risks=measures.risks,
        costs=choices.costs(measures, names[:num_classes], class_counts, tree),
        class_names=class_names,
        tree=tree,
        combined_by=measures.combined_by,
    )


def sure_answers(division: Division, max_error: float | None) -> dict[str, Any]:
    """The report of answers of one class with a bounded error; empty without such answers."""
    if max_error is None:
        return {}
    threshold = selective.threshold(division.calibrating, max_error)
    return {"selective": selective.report(division.evaluated, max_error, threshold)}
