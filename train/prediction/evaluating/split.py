"""Evaluates a classifier on a split of its data set."""

from typing import Any

from train.evaluation import bayes, metric
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError
from train.prediction import outliers
from train.prediction.evaluating import choices, halving, new_class_report, set_reports
from train.prediction.evaluating.evaluated import Evaluated
from train.prediction.evaluating.measures import Measures
from train.prediction.other_calibrations import NewCalibration
from train.prediction.trained import TrainedClassifier

_VALIDATION = "validation"


def evaluate(
    classifier: TrainedClassifier,
    split: str,
    measures: Measures,
    *,
    is_half: bool,
) -> Evaluated:
    """Evaluates a finished run or published weights, with thresholds from validation examples.

    Args:
        classifier: the classifier.
        split: the split.
        measures: what is measured.
        is_half: whether thresholds are calibrated on one half of the validation examples.

    Raises:
        UserError: the data set does not have the split, or thresholds cannot be calibrated.
    """
    spec, class_counts = classifier.spec, classifier.class_counts
    ks = measures.ks_of(classifier.num_classes, usual=classifier.config.eval.ks)
    dataset = classifier.load_dataset()
    if split not in dataset.splits:
        raise UserError(
            f"--split must not be {split} with the data set {spec.name}: it has no such test set"
        )
    score = None
    if measures.new_score is not None:
        score = outliers.of_classifier(classifier, measures.new_score)

    def predict(split: str) -> Predictions:
        found = classifier.predict(split)
        if score is None:
            return found
        return outliers.measure(found, score, dataset.splits[split], split)

    examples = predict(split)
    division = halving.divide(
        examples,
        None if split == _VALIDATION else predict(_VALIDATION),
        is_half=is_half,
        in_words="validation examples",
    )
    evaluated, calibrating = division.evaluated, division.calibrating
    class_names = classifier.classes.names
    document = set_reports.report(
        division,
        measures,
        ks=ks,
        class_counts=class_counts,
        class_names=class_names,
        tree=classifier.tree,
    )
    if score is not None:
        document["none_of_these"] = new_class_report.report(
            evaluated,
            score,
            NewCalibration(classifier, calibrating),
            choices.coverages_with_new(measures, len(calibrating.labels)),
            choices.rules(measures, (evaluated, calibrating), class_counts, classifier.tree),
            are_rules_optional=measures.are_rules_optional,
        )
    document |= set_reports.sure_answers(division, measures.max_error)
    if spec.true_distribution is not None:
        of_split = dataset.splits[split].take(division.chosen)
        is_balanced = split == "balanced_test"
        best = bayes.summarize(
            spec.true_distribution,
            of_split,
            dataset.validation.take(division.others),
            ks,
            class_counts,
            balanced=is_balanced,
        )
        document["bayes"] = metric.to_json(best)
        document["gap_to_bayes"] = metric.to_json(
            bayes.gap(best, metric.from_json(document["metrics"]))
        )
        # If all classes are equally frequent, others are the best.
        if classifier.tree is not None and not is_balanced:
            document["bayes_ranks"] = bayes.accuracies_by_rank(
                spec.true_distribution, of_split, classifier.tree, ks
            )
    about: dict[str, Any] = {
        "split": split,
        "config": classifier.config.to_plain(),
        "calibrated_on": division.calibrated_on,
    }
    _, origin = classifier.origin
    title = f"{spec.name}, {origin}, {split} split"
    return Evaluated(
        title=title,
        report=about | document,
        examples=evaluated,
        class_names=class_names,
        class_counts=class_counts,
        split=dataset.splits[split],
        inputs=spec.inputs,
    )
