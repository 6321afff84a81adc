"""What is reported about the sets of observations, such as plants with several photographs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from train.evaluation import example_groups, intervals, observations, set_rules, summaries
from train.evaluation.observations import Combination, InGroups, Observations
from train.evaluation.predictions import Predictions
from train.evaluation.thresholds import fewest_examples, one_of_group_threshold

# The report of predictions, and of those that thresholds are calibrated on, at some coverages.
Report = Callable[[Predictions, Predictions, Sequence[float]], dict[str, Any]]


def report(
    examples: Predictions,
    calibrated_on: InGroups,
    coverages: Sequence[float],
    report_of: Report,
) -> dict[str, Any]:
    """The report of the observations of examples that have groups.

    A coverage that needs more observations to calibrate on is left out.

    Args:
        examples: the predictions for the split.
        calibrated_on: the examples that thresholds are calibrated on; all are combined as these.
        coverages: the target coverages.
        report_of: makes the report of predictions.

    Raises:
        UserError: the scores cannot be combined so, or no observation has one class.
    """
    combination = calibrated_on.combination
    evaluated = observations.combine(examples, combination)
    calibrated = calibrated_on.observations
    possible = [each for each in coverages if len(calibrated) >= fewest_examples(each)]
    document = report_of(evaluated.predictions, calibrated.predictions, possible)
    return {
        **described(evaluated, combination),
        **document,
        "one_example": {
            f"{coverage}": _one_example(examples, calibrated_on.examples, coverage)
            for coverage in possible
        },
    }


def described(found: Observations, combination: Combination) -> dict[str, Any]:
    """The numbers of examples of observations, and how these were combined."""
    fields: dict[str, Any] = {
        "combined_by": combination.name,
        "mean_num_combined": float(found.sizes.mean()),
        "most_combined": int(found.sizes.max()),
    }
    if combination.weights is not None:
        fields["weights"] = list(combination.weights)
    if found.num_ambiguous:
        fields["num_of_several_classes"] = found.num_ambiguous
    return fields


def _one_example(
    examples: Predictions, calibrated_on: Predictions, coverage: float
) -> dict[str, Any]:
    """The quality of sets for one example of each observation, drawn at random."""
    assert examples.groups is not None
    threshold = one_of_group_threshold(calibrated_on, coverage)
    found = summaries.find_sets(examples, set_rules.at_threshold(threshold))
    _, of_examples = example_groups.numbered(examples.groups)
    shares = 1 / np.bincount(of_examples)[of_examples]
    mean = shares / shares.sum()
    return {
        "threshold": threshold,
        "coverage": float(mean @ found.hits),
        "coverage_interval": intervals.by_clusters(of_examples, "groups")(found.hits),
        "set_size": float(mean @ found.sizes),
        "empty_share": float(mean @ (found.sizes == 0)),
    }
