"""Everything that is reported about a classifier's sets: accuracies, sizes, coverages."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from absl import logging

from topk_jax import metrics
from train.data.taxonomy import ClassTree
from train.evaluation import (
    by_rank,
    combinations,
    conformal_sets,
    cost_thresholds,
    evaluated,
    example_groups,
    intervals,
    metric,
    observation_report,
    observations,
    score_files,
    set_rules,
    several_labels,
    summaries,
    utility_sets,
)
from train.evaluation.conformal_rules import ConformalRule
from train.evaluation.costs import Costs
from train.evaluation.metric import Metric, Rule
from train.evaluation.observations import InGroups
from train.evaluation.predictions import Predictions
from train.evaluation.set_rules import SetRule
from train.evaluation.summaries import Sets
from train.evaluation.thresholds import (
    average_error_threshold,
    average_k_thresholds,
    conformal_threshold,
    error_in_binary,
)
from train.foundation.errors import UserError

Value = TypeVar("Value")

# Bounds of the groups of classes by training images. A group is above a bound, up to the next one:
# thesis, table 3.1.
_COUNT_BOUNDS = (0, 10, 50, 500, 2000)
# The number of listed classes with the least coverage.
_NUM_LISTED = 5


def set_report(
    examples: Predictions,
    calibrated_on: Predictions,
    *,
    ks: Sequence[int],
    coverages: Sequence[float],
    class_counts: np.ndarray | None,
    rules: Sequence[ConformalRule] = (),
    are_rules_optional: bool = False,
    utilities: Sequence[str] = (),
    risks: Sequence[float] = (),
    costs: Costs | None = None,
    class_names: Sequence[str] | None = None,
    combined_by: str = combinations.DEFAULT,
    tree: ClassTree | None = None,
    are_observations: bool = False,
) -> dict[str, Any]:
    """Everything that is reported about a split, as files have it.

    Args:
        examples: the predictions for the split.
        calibrated_on: the predictions for the examples that thresholds are calibrated on.
        ks: sizes, and mean sizes, of sets.
        coverages: the target coverages, in (0, 1).
        class_counts: the training images of each class; if None, there is no report by class size.
        rules: conformal rules that are reported too.
        are_rules_optional: whether a rule is left out at a coverage that it has no limits for.
        utilities: utilities, as the flags take them, whose best sets are reported too.
        risks: bounds of a mean cost; sets for them are reported too.
        costs: the costs of the risks; None without risks.
        class_names: the names of the classes, with the classes that the classifier does not know;
            if None, reports have their indices.
        combined_by: how the scores of the examples of a group are combined for the report of
            observations, one of `combinations.COMBINATIONS`.
        tree: what is above the classes; None if nothing is.
        are_observations: whether the examples are observations; what they are too few for is left
            out.

    Raises:
        UserError: there are too few examples to calibrate on, or a rule needs something that is
            missing.
    """
    if_possible = partial(
        conformal_sets.if_possible, what="observations" if are_observations else "examples"
    )
    thresholds = average_k_thresholds(calibrated_on, ks)
    evaluation = summaries.summarize(examples, thresholds, class_counts)
    groups = {"all": np.ones(examples.num_classes, np.bool_)}
    of_all = None if class_counts is None else examples.counts_of_all(class_counts)
    if of_all is not None:
        shots = metrics.shot_groups(of_all)
        groups |= {shot: np.asarray(classes) for shot, classes in shots.items()}
    report: dict[str, Any] = {
        "num_examples": len(examples.labels),
        "num_classes": examples.scores.shape[-1],
        "evaluated": evaluated.to_json(
            examples.counted_labels,
            len(examples.labels),
            of_all,
            # There may be names of unknown classes without examples in this split.
            (class_names or [str(index) for index in range(examples.num_classes)])[
                : examples.num_classes
            ],
        ),
        "num_calibration_examples": len(calibrated_on.labels),
        "metrics": metric.to_json(evaluation.metrics),
        "thresholds": _name_by_rule(
            "average", {k: float(threshold) for k, threshold in thresholds.items()}
        ),
        "set_size_counts": _name_by_rule(
            "average",
            {
                k: _size_counts(
                    summaries.find_sets(examples, set_rules.at_threshold(threshold)),
                    examples.labels,
                    groups,
                )
                for k, threshold in thresholds.items()
            },
        ),
        "coverages": {
            f"{coverage}": _evaluate_coverage(examples, calibrated_on, coverage, class_counts, tree)
            for coverage in coverages
        },
    }
    mean_average_precision = several_labels.mean_average_precision(examples)
    if mean_average_precision is not None:
        report["mean_average_precision"] = mean_average_precision
    # Examples of unknown classes are misses.
    if num_unknown := int((~examples.is_known).sum()):
        report["num_examples_of_unknown_classes"] = num_unknown
    if rules and coverages:
        report["conformal_rules"] = {
            f"{coverage}": {
                rule.name: _evaluate_conformal(examples, of_rule, class_counts, class_names, tree)
                for rule in rules
                if (
                    of_rule := if_possible(
                        partial(
                            conformal_sets.calibrate,
                            *(rule, calibrated_on, coverage, class_counts, tree),
                        ),
                        is_optional=are_rules_optional or are_observations,
                    )
                )
            }
            for coverage in coverages
        }
    if utilities:
        report["utilities"] = {
            name: evaluate_utility(examples, name, ks, class_counts) for name in utilities
        }
    if costs is not None and risks:
        report["costs"] = costs.name
        report["risks"] = {
            f"{risk}": evaluate_risk(examples, limit, costs, class_counts)
            for risk in risks
            if (
                limit := if_possible(
                    partial(cost_thresholds.threshold, calibrated_on, costs, risk),
                    is_optional=are_observations,
                )
            )
            is not None
        }
    if of_all is not None:
        report["accuracy_by_count"] = _accuracy_by_count(examples, ks, of_all)
    if examples.groups is not None:
        report["intervals"] = {"level": intervals.LEVEL, **_intervals(examples, evaluation)}
    if tree is not None:
        report |= by_rank.report(examples, tree, ks)
    of_observations = observations_report(
        examples,
        InGroups(calibrated_on, combined_by),
        coverages,
        ks=ks,
        class_counts=class_counts,
        rules=rules,
        utilities=utilities,
        risks=risks,
        costs=costs,
        class_names=class_names,
        tree=tree,
    )
    if of_observations is not None:
        report["observations"] = of_observations
    return report


def observations_report(
    examples: Predictions,
    calibrated_on: InGroups,
    coverages: Sequence[float],
    **given: Any,
) -> dict[str, Any] | None:
    """The report of the observations; None if the examples have no groups of several."""
    if not have_observations(examples, calibrated_on.examples):
        return None

    def report_of(
        of_split: Predictions, of_calibration: Predictions, possible: Sequence[float]
    ) -> dict[str, Any]:
        return set_report(
            of_split, of_calibration, coverages=possible, are_observations=True, **given
        )

    return observation_report.report(examples, calibrated_on, coverages, report_of)


def have_observations(*parts: Predictions) -> bool:
    """Whether examples have groups of several that can be reported; warns of others."""
    if any(part.groups is None for part in parts):
        return False
    if not any(map(example_groups.have_several, parts)):
        return False
    if not all(score_files.are_from_0_to_1(part.scores) for part in parts):
        logging.warning(
            "nothing is reported of observations: the scores of their examples are combined by "
            "logarithms, and these scores are not from 0 to 1"
        )
        return False
    if not all(map(observations.have_labels, parts)):
        logging.warning(
            "nothing is reported of observations: each of them has examples of several classes"
        )
        return False
    return True


def _intervals(examples: Predictions, evaluation: summaries.Evaluation) -> dict[str, list[float]]:
    """The confidence intervals of the accuracies over examples."""
    interval = intervals.of(examples)
    return {
        one.name: interval(evaluation.outcomes.hits(one))
        for one in evaluation.metrics
        if one.is_accuracy and one.average == "micro"
    }


def _name_by_rule(rule: Rule, values: Mapping[int, Value]) -> dict[str, Value]:
    """The entries of the sets of a rule by K, under the names of these rules."""
    return {metric.rule_name(rule, k): value for k, value in values.items()}


def _evaluate_coverage(
    examples: Predictions,
    calibrated_on: Predictions,
    coverage: float,
    class_counts: np.ndarray | None,
    tree: ClassTree | None,
) -> dict[str, dict[str, Any]]:
    """The quality of the kinds of sets with that coverage."""
    error = error_in_binary(coverage)
    conformal = conformal_threshold(calibrated_on, coverage)
    described = {"conformal": _evaluate_threshold(examples, class_counts, conformal, tree)}
    if all(score_files.are_probabilities(one.scores) for one in (examples, calibrated_on)):
        average_error = average_error_threshold(calibrated_on.scores, error)
        described["average_error"] = _evaluate_threshold(
            examples, class_counts, average_error, tree
        )
        described["adaptive"] = _evaluate_sets(
            set_rules.adaptive(error), examples, class_counts, tree
        )
    return described


def _evaluate_threshold(
    examples: Predictions,
    class_counts: np.ndarray | None,
    threshold: float,
    tree: ClassTree | None = None,
) -> dict[str, Any]:
    sets = set_rules.at_threshold(threshold)
    return {"threshold": threshold, **_evaluate_sets(sets, examples, class_counts, tree)}


def _evaluate_sets(
    rule: SetRule, examples: Predictions, class_counts: np.ndarray | None, tree: ClassTree | None
) -> dict[str, Any]:
    found = summaries.find_sets(examples, rule)
    return {
        **rate(found, examples, class_counts),
        **several_labels.describe_sets(found, examples, rule),
        **rate_by_rank(rule, examples, tree),
    }


def _evaluate_conformal(
    examples: Predictions,
    rule: SetRule,
    class_counts: np.ndarray | None,
    class_names: Sequence[str] | None,
    tree: ClassTree | None,
) -> dict[str, Any]:
    found = summaries.find_sets(examples, rule)
    return {
        **rate(found, examples, class_counts),
        **several_labels.describe_sets(found, examples, rule),
        "least_covered": least_covered(found, examples, class_names),
        **rate_by_rank(rule, examples, tree),
    }


def rate_by_rank(rule: SetRule, examples: Predictions, tree: ClassTree | None) -> dict[str, Any]:
    """The quality of the sets at the ranks above the classes; empty without a taxonomy."""
    return {} if tree is None else by_rank.rate(rule, examples, tree)


def evaluate_utility(
    examples: Predictions, name: str, ks: Sequence[int], class_counts: np.ndarray | None
) -> dict[str, Any]:
    """The quality of the sets of the largest expected utility, and of top-K sets."""
    if not score_files.are_probabilities(examples.scores):
        raise UserError(
            "--utility needs probabilities that add up to 1 for each example; these scores do not"
        )
    worth = utility_sets.of_sizes(name, examples.scores.shape[-1])
    found = summaries.find_sets(examples, utility_sets.rule(worth))
    of_top = {k: utility_sets.mean(summaries.top_k_sets(examples, k), worth) for k in ks}
    return {
        "utility": utility_sets.mean(found, worth),
        "utility_of": _name_by_rule("top", of_top),
        **rate(found, examples, class_counts),
    }


def evaluate_risk(
    examples: Predictions, threshold: float, costs: Costs, class_counts: np.ndarray | None
) -> dict[str, Any]:
    """The quality of the sets at a threshold of `cost_thresholds`."""
    return {
        "mean_cost": costs.mean(examples, set_rules.at_threshold(threshold)),
        **_evaluate_threshold(examples, class_counts, threshold),
    }


def rate(found: Sets, examples: Predictions, class_counts: np.ndarray | None) -> dict[str, Any]:
    """How often the sets have the label, and how large they are."""
    covered = summaries.accuracies_by_average(found, examples, class_counts)
    bounds = (
        {} if examples.groups is None else {"coverage_interval": intervals.of(examples)(found.hits)}
    )
    return {
        "coverage": covered.pop("micro"),
        **bounds,
        **{f"{average}_coverage": value for average, value in covered.items()},
        "set_size": float(found.sizes.mean()),
        "empty_share": float((found.sizes == 0).mean()),
    }


def least_covered(
    found: Sets, examples: Predictions, class_names: Sequence[str] | None
) -> list[dict[str, Any]]:
    """The classes whose examples have their label in the fewest of their sets.

    If classes have the same coverage, the class with more examples comes first.
    """
    # If an example has several classes, each counts with its share.
    weights, hits = found.by_class(examples).sums(examples.num_classes)
    present = np.flatnonzero(weights)
    coverages, counts = np.zeros(len(weights)), np.maximum(np.rint(weights), 1)
    coverages[present] = hits[present] / weights[present]
    order = np.lexsort((-counts[present], coverages[present]))[:_NUM_LISTED]
    return [
        {
            **({} if class_names is None else {"class": class_names[index]}),
            "index": int(index),
            "examples": int(counts[index]),
            "coverage": float(coverages[index]),
        }
        for index in present[order]
    ]


def _size_counts(
    found: Sets, labels: np.ndarray, classes_of: Mapping[str, np.ndarray]
) -> dict[str, list[int]]:
    """How many sets have 0, 1, 2, … classes, for the labels of each group of classes."""
    # Not up to the number of classes, which may be a million.
    longest = int(found.sizes.max()) + 1
    return {
        group: np.bincount(found.sizes[classes[labels]], minlength=longest).tolist()
        for group, classes in classes_of.items()
    }


def _accuracy_by_count(
    examples: Predictions, ks: Sequence[int], class_counts: np.ndarray
) -> list[dict[str, Any]]:
    """The top-K accuracies by ranges of the number of training images of the class."""
    hits = {k: summaries.top_k_sets(examples, k).of_labels for k in ks}
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
                    Metric.accuracy("top", k).name: (
                        float(of_k[chosen].mean()) if chosen.any() else None
                    )
                    for k, of_k in hits.items()
                },
            }
        )
    return rows
