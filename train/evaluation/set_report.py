"""All that is said of the sets of a classifier: accuracies, sizes, coverages, by class size."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from topk_jax import sets
from train.evaluation import metric_names, score_files, set_rules, summaries
from train.evaluation.set_rules import SetRule
from train.evaluation.summaries import Predictions, Sets
from train.prediction import calibration

# The groups of classes by training images, each after one bound up to the next: thesis, table 3.1.
_COUNT_BOUNDS = (0, 10, 50, 500, 2000)


def set_report(
    examples: Predictions,
    calibrated_on: Predictions,
    *,
    ks: Sequence[int],
    coverages: Sequence[float],
    class_counts: np.ndarray,
) -> dict[str, Any]:
    """Everything that is reported of a split, as JSON has it.

    Args:
        examples: what the classifier says of the split.
        calibrated_on: what it says of the examples that thresholds are calibrated on.
        ks: sizes, and mean sizes, of sets.
        coverages: in (0, 1); sets are to have the label with these probabilities.
        class_counts: the training images of each class.

    Raises:
        UserError: there are too few examples to calibrate on.
    """
    thresholds = summaries.average_k_thresholds(calibrated_on, ks)
    summary = summaries.summarize(examples, thresholds, class_counts)
    classes_of = {"all": np.ones(len(class_counts), np.bool_), **_shots(class_counts)}
    at_coverages = {
        f"{coverage}": _at_coverage(examples, calibrated_on, coverage, class_counts)
        for coverage in coverages
    }
    return {
        "num_examples": len(examples.labels),
        "num_classes": len(class_counts),
        "num_calibration_examples": len(calibrated_on.labels),
        "metrics": summary.metrics,
        "thresholds": {
            metric_names.average_k(k): float(threshold) for k, threshold in thresholds.items()
        },
        "set_size_counts": {
            metric_names.average_k(k): _size_counts(
                summaries.find_sets(examples, set_rules.at_threshold(threshold)),
                examples.labels,
                classes_of,
            )
            for k, threshold in thresholds.items()
        },
        "coverages": at_coverages,
        "accuracy_by_count": _accuracy_by_count(examples, ks, class_counts),
    }


def without_shots(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report without what follows from the training images of each class."""
    of_shot = tuple(f"{shot}_" for shot in metric_names.SHOTS)

    def stripped(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if not name.startswith(of_shot)}

    return {
        **{name: value for name, value in report.items() if name != "accuracy_by_count"},
        "metrics": stripped(report["metrics"]),
        "set_size_counts": {
            rule: {"all": counts["all"]} for rule, counts in report["set_size_counts"].items()
        },
        "coverages": {
            coverage: {kind: stripped(values) for kind, values in kinds.items()}
            for coverage, kinds in report["coverages"].items()
        },
    }


def _at_coverage(
    examples: Predictions, calibrated_on: Predictions, coverage: float, class_counts: np.ndarray
) -> dict[str, Any]:
    """What three kinds of sets of that coverage are worth."""
    error = min(float(calibration.error_of(coverage)), math.nextafter(1, 0))
    conformal = calibration.conformal_threshold(calibrated_on, coverage)
    described = {"conformal": _described(examples, class_counts, conformal)}
    if all(score_files.are_probabilities(one.scores) for one in (examples, calibrated_on)):
        average_error = float(sets.average_error_threshold(calibrated_on.scores, error=error))
        described["average_error"] = _described(examples, class_counts, average_error)
        described["adaptive"] = _worth(examples, set_rules.adaptive(error), class_counts)
    return described


def _described(
    examples: Predictions, class_counts: np.ndarray, threshold: float
) -> dict[str, float]:
    rule = set_rules.at_threshold(threshold)
    return {"threshold": threshold, **_worth(examples, rule, class_counts)}


def _worth(examples: Predictions, rule: SetRule, class_counts: np.ndarray) -> dict[str, float]:
    """How often the sets have the label, and how large they are."""
    found = summaries.find_sets(examples, rule)
    covered = summaries.accuracies_by_average(found, examples.labels, class_counts)
    return {
        "coverage": covered.pop("micro"),
        **{f"{average}_coverage": value for average, value in covered.items()},
        "set_size": float(found.sizes.mean()),
        "empty_share": float((found.sizes == 0).mean()),
    }


def _shots(class_counts: np.ndarray) -> dict[str, np.ndarray]:
    """Which classes are few, medium and many shot: booleans [L] each."""
    few = class_counts < metric_names.FEW_BELOW
    many = class_counts > metric_names.MANY_ABOVE
    return dict(zip(metric_names.SHOTS, (few, ~few & ~many, many), strict=True))


def _size_counts(
    found: Sets, labels: np.ndarray, classes_of: Mapping[str, np.ndarray]
) -> dict[str, list[int]]:
    """How many sets have 0, 1, …, L classes, for the labels of each group of classes."""
    return {
        group: np.bincount(found.sizes[classes[labels]], minlength=len(classes) + 1).tolist()
        for group, classes in classes_of.items()
    }


def _accuracy_by_count(
    examples: Predictions, ks: Sequence[int], class_counts: np.ndarray
) -> list[dict[str, Any]]:
    """The top-K accuracies over the examples of classes with so many training images."""
    hits = {k: summaries.top_k_sets(examples, k).hits for k in ks}
    counts_of_labels = class_counts[examples.labels]
    rows = []
    for above, up_to in zip(_COUNT_BOUNDS, (*_COUNT_BOUNDS[1:], None), strict=True):
        # The lowest group has the classes without any training image too.
        low, high = above if above else -1, np.inf if up_to is None else up_to
        chosen = (counts_of_labels > low) & (counts_of_labels <= high)
        rows.append(
            {
                "from": above,
                "to": up_to,
                "classes": int(((class_counts > low) & (class_counts <= high)).sum()),
                "examples": int(chosen.sum()),
                **{
                    f"{metric_names.top_k(k)}_accuracy": (
                        float(of_k[chosen].mean()) if chosen.any() else None
                    )
                    for k, of_k in hits.items()
                },
            }
        )
    return rows
