"""Evaluates scores from files, without a network."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from train.evaluation import score_files
from train.evaluation.predictions import Predictions
from train.foundation import names
from train.foundation.errors import UserError
from train.prediction.evaluating import halving, set_reports
from train.prediction.evaluating.evaluated import Evaluated
from train.prediction.evaluating.measures import Measures
from train.prediction.evaluating.score_flags import ScoreFiles
from train.prediction.trained import tree_of


def evaluate(
    files: ScoreFiles, measures: Measures, *, taxonomy: str | None = None, is_half: bool
) -> Evaluated:
    """Evaluates the scores.

    Args:
        files: the scores.
        measures: what is measured.
        taxonomy: what is above the classes, as --taxonomy has it; None for nothing.
        is_half: whether thresholds are calibrated on one half of the examples for it.

    Raises:
        UserError: a file does not have what it may have, or thresholds cannot be calibrated.
    """
    examples = score_files.read_scores(files.logits, files.labels, flag="logits")
    num_classes = examples.scores.shape[1]
    calibration = _calibration(files, num_classes)
    ks = measures.ks_of(num_classes)
    class_counts = _class_counts(files, num_classes)
    class_names = score_files.class_names_beside(files.logits, num_classes)
    if files.calibration_logits is not None:
        flag = "calibration_logits"
        others = score_files.class_names_beside(files.calibration_logits, num_classes, flag=flag)
        if others is not None and class_names is not None:
            _check_classes(others, class_names)
    tree = None
    if taxonomy is not None:
        if class_names is None:
            raise UserError(
                f"--taxonomy needs the names of the classes; {files.logits} has no array "
                "class_names"
            )
        tree = tree_of(taxonomy, class_names)
    division = halving.divide(
        dataclasses.replace(examples, names=examples.names_or_numbers()),
        calibration,
        is_half=is_half,
        in_words="examples of --calibration_logits",
    )
    report = set_reports.report(
        division,
        measures,
        ks=ks,
        class_counts=class_counts,
        class_names=class_names,
        tree=tree,
    )
    about = {"logits": str(files.logits), "calibrated_on": division.calibrated_on}
    about |= set_reports.sure_answers(division, measures.max_error)
    return Evaluated(
        title=str(files.logits),
        report=about | report,
        examples=division.evaluated,
        class_names=class_names or [str(index) for index in range(num_classes)],
        class_counts=class_counts,
    )


def _calibration(files: ScoreFiles, num_classes: int) -> Predictions | None:
    """The scores to calibrate on; None for those that are evaluated."""
    if files.calibration_logits is None:
        return None
    found = score_files.read_scores(
        files.calibration_logits, files.calibration_labels, flag="calibration_logits"
    )
    if found.scores.shape[1] != num_classes:
        raise UserError(
            f"--calibration_logits must have the {num_classes} classes of --logits; it has "
            f"{found.scores.shape[1]}"
        )
    return found


def _check_classes(found: Sequence[str], expected: Sequence[str]) -> None:
    """Refuses scores to calibrate on that are of other classes, or of these in another order."""
    for index, pair in enumerate(zip(found, expected, strict=True)):
        if names.same_form(pair[0]) != names.same_form(pair[1]):
            one, other = map(names.shown, pair)
            raise UserError(
                "--calibration_logits must have the class_names of --logits in the same order; its "
                f"class {index} is {one!r}, and that of --logits is {other!r}"
            )


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
