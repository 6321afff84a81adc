"""The report of examples with thresholds that other examples calibrate."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from train.evaluation import selective
from train.evaluation.class_tree import ClassTree
from train.evaluation.covariate_shift import LogWeights
from train.evaluation.predictions import Predictions
from train.evaluation.set_report import SetReport, set_report
from train.prediction.evaluating import choices
from train.prediction.evaluating.measures import Measures


def report(
    examples: Predictions,
    calibrated_on: Predictions,
    measures: Measures,
    *,
    ks: Sequence[int],
    class_counts: np.ndarray | None,
    class_names: Sequence[str] | None,
    tree: ClassTree | None,
    log_weights: LogWeights | None = None,
) -> SetReport:
    """What is measured on the examples; see `set_report`."""
    num_classes = examples.scores.shape[-1]
    names = class_names or [str(index) for index in range(num_classes)]
    return set_report(
        examples,
        calibrated_on,
        ks=ks,
        coverages=choices.coverages(measures, len(calibrated_on.labels)),
        class_counts=class_counts,
        rules=choices.rules(measures, (examples, calibrated_on), class_counts, tree),
        utilities=measures.utilities,
        risks=measures.risks,
        costs=choices.costs(measures, names[:num_classes], class_counts, tree),
        log_weights=log_weights,
        class_names=class_names,
        tree=tree,
        combined_by=measures.combined_by,
    )


def sure_answers(
    examples: Predictions, calibrated_on: Predictions, max_error: float | None
) -> dict[str, Any]:
    """The report of answers of one class with a bounded error; empty without such answers."""
    if max_error is None:
        return {}
    threshold = selective.threshold(calibrated_on, max_error)
    return {"selective": selective.report(examples, max_error, threshold)}
