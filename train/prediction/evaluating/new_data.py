"""Evaluates a classifier on new labelled data: a finished run, published weights, or a program."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import logging

from train.configuration.datasets import ImagesFields, OwnFields
from train.data import grouping
from train.evaluation import (
    by_rank,
    combinations,
    new_classes,
    observation_report,
    observations,
    promises,
    selective,
    set_report,
)
from train.evaluation.conformal_rules import ConformalRule
from train.evaluation.costs import Costs
from train.evaluation.promises import CalibratedOn, Promise
from train.foundation.printable import printable
from train.prediction import labelled_data, other_calibrations, outliers
from train.prediction.embedding import description
from train.prediction.evaluating import (
    choices,
    new_class_report,
    new_data_report,
    training_examples,
)
from train.prediction.evaluating.evaluated import Evaluated
from train.prediction.evaluating.new_data_calibration import (
    Calibrated,
    calibrate,
    calibrate_observations,
    coverages_with_new,
    needed,
)
from train.prediction.evaluating.new_data_flags import Asked
from train.prediction.evaluating.new_data_report import NewData
from train.prediction.exported_classifier import ExportedClassifier
from train.prediction.labelled_data import Expected, LabelledData
from train.prediction.other_calibrations import GivenCalibration, NewCalibration
from train.prediction.trained import TrainedClassifier, tree_of


def find(classifier: TrainedClassifier | ExportedClassifier, asked: Asked) -> LabelledData:
    """The new data.

    Raises:
        UserError: they are not what the classifier takes.
    """
    if isinstance(classifier, TrainedClassifier):
        expected = expected_by(classifier, asked)
    else:
        expected = dataclasses.replace(classifier.expected, group=asked.group)
    return labelled_data.find(asked.flag, asked.path, expected)


def evaluate(classifier: TrainedClassifier, asked: Asked, found: LabelledData) -> Evaluated:
    """Evaluates a finished run or published weights, and writes new thresholds if asked.

    Args:
        classifier: the classifier.
        asked: what is asked.
        found: the new data.

    Raises:
        UserError: the data are not what the classifier takes, or thresholds cannot be calibrated.
    """
    spec, measures = classifier.spec, asked.measures
    # Before all examples are predicted.
    ks = measures.ks_of(classifier.num_classes, usual=classifier.config.eval.ks)
    costs = choices.costs(
        measures, classifier.classes.names, classifier.class_counts, classifier.tree
    )
    given = None
    if asked.thresholds is not None:
        given = GivenCalibration(classifier, asked.thresholds)
    if classifier.of_run is not classifier:
        training_examples.warn_of_training_rows(classifier.of_run, found)
    elif not training_examples.warn_of_own_data(classifier, asked.flag, asked.path):
        training_examples.warn_of_training_images(classifier, found)
    score = None
    if measures.new_score is not None:
        score = outliers.of_classifier(classifier, measures.new_score)
    examples = classifier.predict_new(found.examples)
    if score is not None:
        examples = outliers.measure(examples, score, found.examples, "new")
    data = NewData(
        examples=examples,
        class_names=(*classifier.classes.names, *found.unknown_names),
        # A list of names has no training images.
        class_counts=classifier.class_counts if classifier.class_counts.any() else None,
        what=spec.example,
        tree=classifier.tree,
    )
    calibrated = calibrate(classifier, data, asked, ks, given)
    data, calibration = calibrated.data, calibrated.calibration
    rules = choices.rules(measures, [data.known], data.class_counts, data.tree)
    report = new_data_report.report(
        data,
        calibration,
        ks=ks,
        average_ks=calibrated.average_ks,
        coverages=calibrated.coverages,
        rules=rules,
        are_rules_optional=measures.are_rules_optional,
    )
    if costs is not None:
        # Before the sets of any risk are calibrated.
        needed(calibration, "--risks")
    report |= new_data_report.worth(
        data, calibration, ks=ks, utilities=measures.utilities, risks=measures.risks, costs=costs
    )
    if score is not None:
        report["none_of_these"] = new_class_report.report(
            data.examples,
            score,
            needed(calibration, "--allow_new"),
            coverages_with_new(calibrated, asked, score),
            rules,
            are_rules_optional=measures.are_rules_optional,
        )
    if measures.max_error is not None:
        least = needed(calibration, "--max_error").selective(measures.max_error)
        report["selective"] = selective.report(data.examples, measures.max_error, least)
    of_observations = _observations(
        classifier,
        calibrated,
        asked,
        ks=ks,
        rules=rules,
        utilities=measures.utilities,
        risks=measures.risks,
        costs=costs,
    )
    if isinstance(calibration, NewCalibration) and asked.calibration_out is not None:
        made = [calibration]
        if of_observations:
            coverages, bounds = (
                [*map(float, of_observations["observations"].get(name, ()))]
                for name in ("coverages", "risks")
            )
            made.append(
                calibrate_observations(classifier, calibrated, ks, coverages, rules, bounds, costs)
            )
        on = f"{calibrated.on} ({calibrated.number:,})"
        other_calibrations.write(asked.calibration_out, classifier, made, on)
    number = calibrated.number
    about = {
        "data": str(asked.place),
        "config": classifier.config.to_plain(),
        "calibrated_on": calibrated.on,
        **({} if number is None else {"num_calibration_examples": number}),
        "unreadable": _listed(found),
    }
    _, origin = classifier.origin
    return Evaluated(
        title=f"{spec.name}, {origin}, {spec.example}s of {found.path}",
        report=about | report | of_observations,
        examples=data.examples,
        class_names=data.class_names,
        class_counts=data.class_counts,
        split=found.examples,
        inputs=spec.inputs,
        unreadable=tuple(found.unreadable.values()),
    )


def evaluate_program(
    classifier: ExportedClassifier, asked: Asked, found: LabelledData
) -> Evaluated:
    """Evaluates the sets of an exported program; see `evaluate`.

    Raises:
        UserError: the data are not what the program takes.
    """
    expected = classifier.expected
    num_classes, inputs = len(expected.class_names), expected.inputs
    # Before all examples are predicted.
    ks = asked.measures.ks_of(num_classes)
    tree = classifier.rule.tree
    if asked.taxonomy is not None:
        tree = tree_of(asked.taxonomy, expected.class_names)
    answers = classifier.predict(found.examples, tree)
    sets = answers.sets
    data = NewData(
        examples=answers.predictions,
        class_names=(*expected.class_names, *found.unknown_names),
        class_counts=None,
        what="image" if inputs == "images" else "row",
        tree=tree,
    )
    report = new_data_report.report(data, None, ks=ks, average_ks=(), coverages=(), rules=())
    about: dict[str, Any] = {
        "data": str(asked.place),
        "program": str(classifier.path),
        "unreadable": _listed(found),
        "sets": {
            "rule": str(classifier.rule),
            **new_data_report.rated(data, sets, classifier.promised),
        },
    }
    is_known = data.examples.is_known
    if answers.says_new is not None:
        about["sets"]["none_of_these"] = new_classes.rate(sets, answers.says_new, ~is_known)
    if tree is not None and answers.of_ranks is not None:
        about["sets"] |= by_rank.summary(answers.of_ranks[:, is_known], tree)
    report |= new_data_report.worth(data, None, ks=ks, utilities=asked.measures.utilities, own=sets)
    return Evaluated(
        title=f"{classifier.path}, {classifier.rule}, {data.what}s of {found.path}",
        report=about | report,
        examples=data.examples,
        class_names=data.class_names,
        class_counts=None,
        sets=sets,
        split=found.examples,
        inputs=inputs,
        unreadable=tuple(found.unreadable.values()),
    )


def expected_by(classifier: TrainedClassifier, asked: Asked) -> Expected:
    """What a classifier takes; images and groups are read as those that it was trained on."""
    spec, fields = classifier.spec, classifier.config.dataset
    grammar = description.grammar_of(classifier.assembly.data.facts.embedded_by)
    if isinstance(fields, ImagesFields) and grouping.is_pattern(fields.group):
        grammar = fields.group
    return Expected(
        class_names=classifier.classes.names,
        inputs=spec.inputs,
        shape=classifier.image_shape,
        reader=spec.image_reader if spec.has_images else None,
        group=asked.group,
        grammar=grammar,
        fields=fields if isinstance(fields, OwnFields) else None,
        name="the network" if classifier.workdir is None else "the run",
    )


def _observations(
    classifier: TrainedClassifier, calibrated: Calibrated, asked: Asked, **given: Any
) -> dict[str, Any]:
    """The report of the observations, which groups of several examples are; empty without any."""
    data = calibrated.data
    if asked.thresholds is not None:
        limits = GivenCalibration(classifier, asked.thresholds, combinations.DEFAULT)
        return _observations_at(limits, data, asked, **given)
    if calibrated.in_groups is None:
        return {}
    found = set_report.observations_report(
        data.known,
        calibrated.in_groups,
        calibrated.coverages,
        class_counts=data.class_counts,
        class_names=data.class_names,
        tree=data.tree,
        **given,
    )
    if found is None:
        return {}
    on = CalibratedOn.of(calibrated.in_groups.observations.predictions)
    for coverage, kinds in found["coverages"].items():
        sets = kinds["conformal"]
        sets |= promises.to_json(
            Promise(float(coverage), on),
            sets["coverage"],
            found["num_examples"],
            sets["coverage_interval"],
            "these observations",
        )
    return {"observations": found}


def _observations_at(
    limits: GivenCalibration,
    data: NewData,
    asked: Asked,
    *,
    ks: Sequence[int],
    rules: Sequence[ConformalRule],
    utilities: Sequence[str],
    risks: Sequence[float],
    costs: Costs | None,
) -> dict[str, Any]:
    """The report of the observations by the limits of a file, as far as it has some for them."""
    if not set_report.have_observations(data.known):
        return {}
    coverages = limits.values("coverage")
    if not coverages:
        logging.warning(
            "nothing is reported of observations: --thresholds %s has no coverage for them",
            asked.thresholds,
        )
        return {}
    combination = limits.combination()
    assert combination is not None
    found = observations.combine(data.known, combination)
    of_observations = dataclasses.replace(data, examples=found.predictions, what="observation")
    wanted = asked.measures.coverages
    kept = [one for one in risks if costs and one in limits.values("risk", f"_{costs.digest}")]
    for risk in risks:
        if risk not in kept:
            logging.warning(
                "left out of the observations: --thresholds %s has no --risks=%s for them",
                *(asked.thresholds, risk),
            )
    report = new_data_report.report(
        of_observations,
        limits,
        ks=ks,
        average_ks=limits.values("average"),
        coverages=[one for one in coverages if wanted is None or one in wanted],
        rules=rules,
        are_rules_optional=True,
    )
    report |= new_data_report.worth(
        of_observations,
        limits,
        ks=ks,
        utilities=utilities,
        risks=kept,
        costs=costs,
    )
    counted = limits.counted()
    about = {
        "calibrated_on": limits.calibrated_on,
        **({} if counted is None else {"num_calibration_examples": counted.examples}),
    }
    return {
        "observations": observation_report.described(found, combination) | about | report,
    }


def _listed(found: LabelledData) -> list[dict[str, Any]]:
    """The images that cannot be read, as files have them."""
    pairs = found.unreadable.items()
    return [{"path": printable(name), "error": printable(why)} for name, why in pairs]
