"""What is reported about the sets of a classifier on new labelled data.

Classes that the classifier does not know are counted apart: no set can have their name, and nothing
promises one. All other numbers are of the examples of known classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from train.data.taxonomy import ClassTree
from train.evaluation import (
    by_rank,
    conformal_sets,
    evaluated,
    example_groups,
    intervals,
    metric,
    promises,
    set_rules,
    several_labels,
    summaries,
    utility_sets,
)
from train.evaluation.conformal_rules import ConformalRule
from train.evaluation.costs import Costs
from train.evaluation.metric import LOSS, Metric, Rule
from train.evaluation.predictions import Predictions
from train.evaluation.promises import Promise
from train.evaluation.set_report import (
    evaluate_risk,
    evaluate_utility,
    least_covered,
    rate,
    rate_by_rank,
)
from train.evaluation.set_rules import SetRule
from train.evaluation.summaries import Sets
from train.foundation.errors import UserError
from train.foundation.printable import printable
from train.prediction.calibration import Calibration


@dataclass(frozen=True, kw_only=True)
class NewData:
    """The predictions of a classifier for new examples, at least one of them of a known class.

    Attributes:
        examples: the predictions.
        class_names: the names of the classes, with those that the classifier does not know.
        class_counts: the training images of each class, [L]; None if they are not known.
        what: what messages call an example, as "image".
        tree: what is above the classes; None if nothing is.
    """

    examples: Predictions
    class_names: Sequence[str]
    class_counts: np.ndarray | None
    what: str
    tree: ClassTree | None = None

    def __post_init__(self) -> None:
        if not self.examples.is_known.any():
            raise UserError(f"none of the new {self.what}s of classes that are known can be read")

    @cached_property
    def known(self) -> Predictions:
        """The predictions for the examples of known classes."""
        return self.examples.take(np.flatnonzero(self.examples.is_known))

    def take_known(self, chosen: np.ndarray) -> "NewData":
        """The same with some of the examples of known classes, and all others."""
        is_known = self.examples.is_known
        kept = np.append(np.flatnonzero(is_known)[chosen], np.flatnonzero(~is_known))
        return replace(self, examples=self.examples.take(np.sort(kept)))

    def of_known(self, found: Sets) -> Sets:
        """The sets of the examples of known classes."""
        return found.take(np.flatnonzero(self.examples.is_known))

    @cached_property
    def interval(self) -> intervals.Interval:
        """Makes the interval of a share of the examples of known classes."""
        return intervals.of(self.known)

    def counts(self) -> dict[str, Any]:
        """The numbers of examples and classes, as files have them."""
        known, num_classes = self.known, self.known.scores.shape[-1]
        groups = known.groups
        unknown = self.examples.labels[~self.examples.is_known]
        numbers = np.bincount(unknown, minlength=len(self.class_names))
        return {
            "num_examples": len(known.labels),
            "num_classes": num_classes,
            "num_groups": None if groups is None else len(example_groups.numbered(groups)[0]),
            "evaluated": evaluated.to_json(
                known.counted_labels,
                len(known.labels),
                self.class_counts,
                self.class_names[:num_classes],
            ),
            "unknown_classes": {
                "num_examples": len(unknown),
                "classes": {
                    printable(self.class_names[label]): int(numbers[label])
                    for label in np.flatnonzero(numbers).tolist()
                },
            },
        }


def rated(data: NewData, found: Sets, promise: Promise | None) -> dict[str, Any]:
    """The quality of sets, as files have it.

    Args:
        data: the predictions.
        found: the sets of all examples.
        promise: what the sets promise; None if they do not promise any coverage.
    """
    of_known = data.of_known(found)
    interval = data.interval(of_known.hits)
    plain = {**rate(of_known, data.known, data.class_counts), "coverage_interval": interval}
    if promise is not None:
        share, number = float(of_known.hits.mean()), promises.num_independent(data.known)
        plain |= promises.to_json(promise, share, number, interval, f"these {data.what}s")
    of_unknown = found.sizes[~data.examples.is_known]
    if of_unknown.size:
        plain["of_unknown_classes"] = {
            "set_size": float(of_unknown.mean()),
            "empty_share": float((of_unknown == 0).mean()),
        }
    return plain


def report(
    data: NewData,
    calibration: Calibration | None,
    *,
    ks: Sequence[int],
    average_ks: Sequence[float],
    coverages: Sequence[float],
    rules: Sequence[ConformalRule],
    are_rules_optional: bool = False,
) -> dict[str, Any]:
    """The report, as files have it.

    Args:
        data: the predictions.
        calibration: the thresholds; None for a classifier without any, which has only top-K sets.
        ks: sizes of sets.
        average_ks: mean sizes of sets, some of `ks`.
        coverages: the coverages that sets promise.
        rules: conformal rules that are reported too.
        are_rules_optional: whether a rule is left out at a coverage that it has no limits for.

    Raises:
        UserError: there is no such threshold, or it cannot be calibrated.
    """
    values, of_shares = {LOSS: data.known.mean_loss()}, {}

    def add(rule: Rule, k: int, found: Sets) -> None:
        shares = summaries.accuracies_by_average(found, data.known, data.class_counts)
        for average, value in shares.items():
            values[Metric.accuracy(rule, k, average)] = value
        of_shares[Metric.accuracy(rule, k).name] = data.interval(found.hits)

    thresholds, of_coverages, of_rules = {}, {}, {}
    for k in ks:
        add("top", k, summaries.top_k_sets(data.known, k))
        if calibration is not None and k in average_ks:
            threshold = thresholds[metric.rule_name("average", k)] = calibration.average_k(k)
            found = summaries.find_sets(data.known, set_rules.at_threshold(threshold))
            add("average", k, found)
            values[Metric.set_size(k)] = float(found.sizes.mean())
    for coverage in coverages if calibration is not None else ():
        assert calibration is not None
        threshold = calibration.conformal(coverage)
        promise = Promise(coverage, calibration.counted())
        sets = set_rules.at_threshold(threshold)
        found = summaries.find_sets(data.examples, sets)
        of_coverages[f"{coverage}"] = {
            "conformal": {
                "threshold": threshold,
                **rated(data, found, promise),
                **several_labels.describe_sets(data.of_known(found), data.known, sets),
                **rate_by_rank(sets, data.known, data.tree),
            }
        }
        of_rules[f"{coverage}"] = {
            rule.name: _rated_rule(data, of_rule, promise, rule)
            for rule in rules
            if (
                of_rule := conformal_sets.if_possible(
                    partial(calibration.sets_of, coverage, rule),
                    is_optional=are_rules_optional,
                    what=f"{data.what}s",
                )
            )
        }
    mean_precision = several_labels.mean_average_precision(data.known)
    return {
        **data.counts(),
        "metrics": metric.to_json(values),
        **({} if mean_precision is None else {"mean_average_precision": mean_precision}),
        "intervals": {"level": intervals.LEVEL, **of_shares},
        "thresholds": thresholds,
        "coverages": of_coverages,
        **({"conformal_rules": of_rules} if rules else {}),
        **({} if data.tree is None else by_rank.report(data.known, data.tree, ks)),
    }


def worth(
    data: NewData,
    calibration: Calibration | None,
    *,
    ks: Sequence[int],
    utilities: Sequence[str],
    risks: Sequence[float] = (),
    costs: Costs | None = None,
    own: Sets | None = None,
) -> dict[str, Any]:
    """What the sets of the largest expected utility, and of a bounded mean cost, are worth.

    Args:
        data: the predictions.
        calibration: the thresholds; needed for risks.
        ks: sizes of sets to compare the best sets with.
        utilities: the utilities.
        risks: the bounds of the mean cost.
        costs: the costs of the risks.
        own: the sets of a program, of all examples, to compare the best sets with.

    Raises:
        UserError: a utility needs probabilities, or a threshold cannot be calibrated.
    """
    found: dict[str, Any] = {}
    of_utilities = {
        name: evaluate_utility(data.known, name, ks, data.class_counts) for name in utilities
    }
    if own is not None:
        for name, values in of_utilities.items():
            worths = utility_sets.of_sizes(name, data.known.scores.shape[-1])
            values["utility_of"]["program"] = utility_sets.mean(data.of_known(own), worths)
    if of_utilities:
        found["utilities"] = of_utilities
    if costs is not None:
        assert calibration is not None
        found["costs"] = costs.name
        found["risks"] = {
            f"{risk}": evaluate_risk(
                data.known, calibration.risk(risk, costs.name), costs, data.class_counts
            )
            for risk in risks
        }
    return found


def _rated_rule(
    data: NewData, sets: SetRule, promise: Promise, rule: ConformalRule
) -> dict[str, Any]:
    found = summaries.find_sets(data.examples, sets)
    promise = replace(promise, coverage=promises.promised(promise.coverage, rule))
    return {
        **rated(data, found, promise),
        **several_labels.describe_sets(data.of_known(found), data.known, sets),
        **rate_by_rank(sets, data.known, data.tree),
        "least_covered": least_covered(data.of_known(found), data.known, data.class_names),
    }
