"""Evaluates somebody's scores, without a network."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train.evaluation import score_files
from train.evaluation.covariate_shift import LogWeights
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError
from train.prediction.evaluating import halving, set_reports
from train.prediction.evaluating.evaluated import Evaluated
from train.prediction.evaluating.measures import Measures
from train.prediction.trained import tree_of


@dataclass(frozen=True, kw_only=True)
class ScoreFiles:
    """Files with scores and what belongs to them.

    Attributes:
        logits: the scores that are evaluated.
        labels: their labels; None if the file of the scores has them.
        calibration_logits: the scores to calibrate on; None for the same.
        calibration_labels: their labels.
        class_counts: the training images of each class; None if the file of the scores may have
            them.
        taxonomy: what is above the classes, as --taxonomy has it; None for nothing.
    """

    logits: Path
    labels: Path | None = None
    calibration_logits: Path | None = None
    calibration_labels: Path | None = None
    class_counts: Path | None = None
    taxonomy: str | None = None


def evaluate(files: ScoreFiles, measures: Measures, *, is_half: bool) -> Evaluated:
    """Evaluates the scores.

    Args:
        files: the scores.
        measures: what is measured.
        is_half: whether thresholds are calibrated on one half of the examples for it.

    Raises:
        UserError: a file does not have what it may have, or thresholds cannot be calibrated.
    """
    examples = score_files.read_scores(files.logits, files.labels, flag="logits")
    num_classes = examples.scores.shape[1]
    same = files.calibration_logits is None
    calibrated_on, weights = examples, None
    if files.calibration_logits is not None:
        calibrated_on = score_files.read_scores(
            files.calibration_logits, files.calibration_labels, flag="calibration_logits"
        )
        if calibrated_on.scores.shape[1] != num_classes:
            raise UserError(
                f"--calibration_logits must have the {num_classes} classes of --logits; it has "
                f"{calibrated_on.scores.shape[1]}"
            )
    ks = measures.ks_of(num_classes)
    class_counts = _class_counts(files, num_classes)
    class_names = score_files.class_names_beside(files.logits, num_classes)
    tree = None
    if files.taxonomy is not None:
        if class_names is None:
            raise UserError(
                f"--taxonomy needs the names of the classes; {files.logits} has no array "
                "class_names"
            )
        tree = tree_of(files.taxonomy, class_names)
    chosen, others = halving.divide(
        len(examples.labels), len(calibrated_on.labels), same=same, is_half=is_half
    )
    if files.calibration_logits is not None:
        weights = _log_weights(files.logits, examples, files.calibration_logits, calibrated_on)
    evaluated, calibrating = examples.take(chosen), calibrated_on.take(others)
    report = set_reports.report(
        evaluated,
        calibrating,
        measures,
        ks=ks,
        class_counts=class_counts,
        class_names=class_names,
        tree=tree,
        log_weights=None if weights is None else weights.take(chosen, others),
    )
    on = halving.describe("examples of --calibration_logits", same=same, is_half=is_half)
    about = {"logits": str(files.logits), "calibrated_on": on}
    about |= set_reports.sure_answers(evaluated, calibrating, measures.max_error)
    named = dataclasses.replace(examples, names=examples.names_or_numbers())
    return Evaluated(
        title=str(files.logits),
        report=about | report.to_json(),
        examples=named.take(chosen),
        class_names=class_names or [str(index) for index in range(num_classes)],
        class_counts=class_counts,
    )


def _log_weights(
    logits: Path, examples: Predictions, calibration_logits: Path, calibrated_on: Predictions
) -> LogWeights | None:
    """The weights of a covariate shift, if both files have them."""
    found, others = (
        score_files.log_weights_beside(path, len(given.labels), flag=flag)
        for path, given, flag in (
            (logits, examples, "logits"),
            (calibration_logits, calibrated_on, "calibration_logits"),
        )
    )
    if found is None and others is None:
        return None
    if found is None or others is None:
        raise UserError("--logits and --calibration_logits must both have log_weights, or neither")
    return LogWeights(found, others)


def _class_counts(files: ScoreFiles, num_classes: int) -> np.ndarray | None:
    path = files.class_counts
    if path is None:
        return score_files.class_counts_beside(files.logits, num_classes)
    counts = score_files.read_integers(path, flag="class_counts")
    if len(counts) != num_classes or counts.min() < 0:
        smallest = f", the smallest of them {counts.min()}" if counts.size else ""
        raise UserError(
            f"--class_counts must be the number of training images of each of the {num_classes} "
            f"classes; {path} has {len(counts)} numbers{smallest}"
        )
    return counts
