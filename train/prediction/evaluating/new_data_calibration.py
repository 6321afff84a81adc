"""Chooses the thresholds for new data: given ones, the thresholds of the run, or new ones."""

from collections.abc import Sequence
from dataclasses import dataclass

from absl import logging

from train.evaluation import combinations, evaluated, example_groups, thresholds
from train.evaluation.conformal_rules import ConformalRule
from train.evaluation.costs import Costs
from train.evaluation.observations import InGroups
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError
from train.prediction.calibration import Calibration
from train.prediction.evaluating import choices, halving
from train.prediction.evaluating.new_data_flags import Asked
from train.prediction.evaluating.new_data_report import NewData
from train.prediction.other_calibrations import GivenCalibration, NewCalibration
from train.prediction.outliers import OutlierScore
from train.prediction.trained import TrainedClassifier

_LEAST_COVERAGE = 0.8


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """The thresholds, and what is evaluated with them.

    Attributes:
        data: the examples that are evaluated.
        calibration: the thresholds; None without any.
        on: the examples that they are calibrated on, in words.
        in_groups: these in groups; None if they are not needed for groups.
        number: how many these are; None if that is not known.
        average_ks: the mean sizes of sets that there are thresholds for.
        coverages: the coverages.
    """

    data: NewData
    calibration: Calibration | None
    on: str
    in_groups: InGroups | None
    number: int | None
    average_ks: Sequence[float]
    coverages: Sequence[float]


def calibrate(
    classifier: TrainedClassifier,
    data: NewData,
    asked: Asked,
    ks: Sequence[int],
    given: GivenCalibration | None,
) -> Calibrated:
    """The thresholds that are asked for, and the examples that are evaluated with them."""
    measures = asked.measures
    if asked.is_half:
        others, chosen = halving.halves(data.known, flag="recalibrate")
        coverages = choices.coverages(measures, len(others))
        if not coverages and measures.coverages is None:
            thresholds.check_enough(len(others), _LEAST_COVERAGE)
        known = data.known.take(others)
        return Calibrated(
            data=data.take_known(chosen),
            calibration=NewCalibration(classifier, known),
            on=f"half of the {data.what}s of {asked.path}",
            in_groups=InGroups(known, combinations.DEFAULT),
            number=len(others),
            average_ks=ks,
            coverages=coverages,
        )
    if given is not None:
        has = given.values("coverage")
        return Calibrated(
            data=data,
            calibration=given,
            on=given.calibrated_on,
            in_groups=None,
            number=None,
            average_ks=ks if measures.ks else given.values("average"),
            coverages=has if measures.coverages is None else measures.coverages,
        )
    number = _num_validation_examples(classifier)
    if number == 0 and measures.coverages:
        needed(None, "--coverages")
    validation = None if data.known.groups is None else _validation_in_groups(classifier)
    if validation is None and example_groups.have_several(data.known):
        logging.warning(
            "nothing is reported of observations: %s has no validation examples in groups at hand; "
            "--recalibrate=half calibrates on new observations",
            "the network" if classifier.workdir is None else "the run",
        )
    return Calibrated(
        data=data,
        calibration=Calibration(classifier) if number else None,
        on="validation examples",
        in_groups=None if validation is None else InGroups(validation, combinations.DEFAULT),
        number=number,
        average_ks=ks,
        coverages=choices.coverages(measures, number),
    )


def needed(calibration: Calibration | None, flag: str) -> Calibration:
    """The thresholds that a flag needs.

    Raises:
        UserError: there are no thresholds.
    """
    if calibration is None:
        raise UserError(
            f"{flag} needs --recalibrate=half, --thresholds or --dataset: --classes has no "
            "images to calibrate on"
        )
    return calibration


def coverages_with_new(
    calibrated: Calibrated, asked: Asked, score: OutlierScore
) -> Sequence[float]:
    """The coverages of sets that may say "none of these"."""
    given = calibrated.calibration
    if isinstance(given, GivenCalibration) and asked.measures.coverages is None:
        return given.values(f"new_{score.name}")
    return choices.coverages_with_new(asked.measures, calibrated.number or 0)


def _validation_in_groups(classifier: TrainedClassifier) -> Predictions | None:
    """The predictions for the validation examples; None if these have no groups, or are gone."""
    try:
        groups = classifier.load_dataset().validation.groups
    except UserError:
        return None
    return None if groups is None else classifier.predict("validation")


def calibrate_observations(
    classifier: TrainedClassifier,
    calibrated: Calibrated,
    ks: Sequence[int],
    coverages: Sequence[float],
    rules: Sequence[ConformalRule],
    risks: Sequence[float],
    costs: Costs | None,
) -> NewCalibration:
    """The thresholds of observations, in the form of the thresholds of examples."""
    assert calibrated.in_groups is not None
    made = NewCalibration(classifier, calibrated.in_groups)
    made.most_combined()
    for k in ks:
        made.average_k(k)
    for coverage in coverages:
        made.conformal(coverage)
        for rule in rules:
            if rule.score is not None:
                made.without_check(coverage, rule)
    for risk in risks if costs is not None else ():
        assert costs is not None
        made.risk(risk, costs.name)
    return made


def _num_validation_examples(classifier: TrainedClassifier) -> int:
    """The validation examples, for which the data set of a run need not be there.

    A network for which only the names of the classes are known has no thresholds.
    """
    if not classifier.class_counts.any():
        return 0
    try:
        return evaluated.num_examples(classifier.results["evaluated"]["validation"])
    except KeyError:
        # A published network, or a run of an earlier version.
        return len(classifier.load_dataset().validation)
