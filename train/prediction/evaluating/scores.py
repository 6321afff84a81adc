"""Evaluates scores from files, without a network."""

import dataclasses
from pathlib import Path

from train.evaluation import score_files
from train.evaluation.score_files import ScoreFile
from train.foundation.errors import UserError
from train.foundation.names import same_form, shown
from train.prediction.evaluating import halving, set_reports
from train.prediction.evaluating.evaluated import Evaluated
from train.prediction.evaluating.measures import Measures
from train.prediction.trained import tree_of


def evaluate(
    path: Path,
    measures: Measures,
    *,
    calibration: Path | None,
    is_half: bool,
    taxonomy: str | None = None,
) -> Evaluated:
    """Evaluates the scores in a file.

    Args:
        path: the file.
        measures: what is measured.
        calibration: a file of scores to calibrate on; None for the same.
        is_half: whether thresholds are calibrated on one half of these.
        taxonomy: what is above the classes, as --taxonomy has it; None for nothing.

    Raises:
        UserError: a file does not have what it may have, or thresholds cannot be calibrated.
    """
    given = score_files.read_scores(path, flag="scores")
    examples, class_names = given.examples, given.class_names
    num_classes = examples.scores.shape[1]
    others = None
    if calibration is not None:
        others = score_files.read_scores(calibration, flag="calibration")
        _check_classes(others, given)
    tree = None
    if taxonomy is not None:
        if class_names is None:
            raise UserError(
                f"--taxonomy needs the names of the classes; {path} has no array class_names"
            )
        tree = tree_of(taxonomy, class_names)
    division = halving.divide(
        dataclasses.replace(examples, names=examples.names_or_numbers()),
        None if others is None else others.examples,
        is_half=is_half,
        in_words="examples of --calibration",
    )
    report = set_reports.report(
        division,
        measures,
        ks=measures.ks_of(num_classes),
        class_counts=given.class_counts,
        class_names=class_names,
        tree=tree,
    )
    about = {"scores": str(path), "calibrated_on": division.calibrated_on}
    about |= set_reports.sure_answers(division, measures.max_error)
    return Evaluated(
        title=str(path),
        report=about | report,
        examples=division.evaluated,
        class_names=class_names or [str(index) for index in range(num_classes)],
        class_counts=given.class_counts,
    )


def _check_classes(others: ScoreFile, given: ScoreFile) -> None:
    """Refuses scores to calibrate on that are of other classes, or of these in another order."""
    numbers = [one.examples.scores.shape[1] for one in (others, given)]
    if numbers[0] != numbers[1]:
        raise UserError(
            f"--calibration must have the {numbers[1]} classes of --scores; it has {numbers[0]}"
        )
    names = (one.class_names or () for one in (others, given))
    for index, pair in enumerate(zip(*names, strict=False)):
        if same_form(pair[0]) != same_form(pair[1]):
            one, other = map(shown, pair)
            raise UserError(
                "--calibration must have the class_names of --scores in the same order; its "
                f"class {index} is {one!r}, and that of --scores is {other!r}"
            )
