"""The row of a rule: how often its sets have the label of labelled examples, and their sizes.

Examples of classes that the classifier does not know are counted apart: no set can have their
label, and nothing promises it.
"""

from functools import cached_property
from typing import Any

import numpy as np

from topk_jax import metrics
from train.data.taxonomy import ClassTree
from train.foundation.errors import UserError
from train.reports import intervals, promises
from train.reports.measuring import Measured, measure
from train.reports.rules import SetRule
from train.scores.observations import num_independent
from train.scores.scores import Scores

# Top-K sets that the sets of a utility are compared with.
_USUAL_KS = (1, 3, 5)
# The least covered classes that a row lists.
MOST_LISTED = 5


def rate(scores: Scores, rule: SetRule) -> dict[str, Any]:
    """The row of a fitted rule: how often its sets have the label, and their sizes."""
    examples = Evaluated(scores)
    return row_of(examples, rule, measure(examples.known, rule))


class Evaluated:
    """Examples of known and of unknown classes, and what all rows have in common."""

    def __init__(self, scores: Scores) -> None:
        self.all = scores
        is_known = scores.known
        if not is_known.any():
            raise UserError("none of the examples is of a class that the classifier knows")
        self.known = scores if is_known.all() else scores.of_known()
        self.unknown = None if is_known.all() else scores.take(np.flatnonzero(~is_known))
        self.interval = intervals.of(self.known)

    @cached_property
    def number(self) -> float:
        """How many independent examples of known classes say as much."""
        return num_independent(self.known)

    @cached_property
    def groups(self) -> dict[str, np.ndarray]:
        """The classes that are counted together, bool [L] each."""
        counts = self.known.classes.counts
        shots = {} if counts is None else metrics.shot_groups(counts)
        every = {"macro": np.ones(self.known.values.shape[1], bool)}
        return every | {shot: np.asarray(classes) for shot, classes in shots.items()}

    def sums(self, found: Measured) -> tuple[np.ndarray, np.ndarray]:
        """The weights of each class, and of its hits, float64 [L] each."""
        truths, number = self.known.truths, self.known.values.shape[1]
        labels, inside = self.known.labels, found.of_labels
        weights = np.ones(len(labels))
        if truths is not None:
            labels, inside = truths.classes.ravel(), found.inside.ravel()
            weights = truths.shares.ravel().astype(np.float64)
        # The truth may have classes that are not known.
        return (
            np.bincount(labels, weights, minlength=number)[:number],
            np.bincount(labels, weights * inside, minlength=number)[:number],
        )


def row_of(examples: Evaluated, rule: SetRule, found: Measured) -> dict[str, Any]:
    """The row of a rule, with the sets of the examples of known classes."""
    known, unknown = examples.known, examples.unknown
    weights, hits = examples.sums(found)
    row: dict[str, Any] = {
        "coverage": float(found.hits.mean(dtype=np.float64)),
        "interval": examples.interval(found.hits),
    }
    for name, classes in examples.groups.items():
        counted = classes & (weights > 0)
        if counted.any():
            row[name] = float((hits[counted] / weights[counted]).mean())
    row["set_size"] = float(found.sizes.mean())
    row["empty"] = float((found.sizes == 0).mean())
    limits = rule.rule.limits
    if limits is not None and np.ndim(limits) == 0 and np.isfinite(limits):
        row["limit"] = float(limits)
    share, number = row["coverage"], examples.number
    if found.says_new is not None:
        row["none_of_these"] = float(found.says_new.mean())
    if unknown is not None:
        of_unknown = measure(unknown, rule)
        row["unknown"] = {"examples": len(unknown), "set_size": float(of_unknown.sizes.mean())}
        right = 0.0
        if of_unknown.says_new is not None:
            row["unknown"]["none_of_these"] = float(of_unknown.says_new.mean())
            right = float(of_unknown.says_new.sum())
        row["coverage_of_all"] = (float(found.hits.sum()) + right) / len(examples.all)
        if found.says_new is not None:
            share, number = row["coverage_of_all"], num_independent(examples.all)
    if rule.promise is not None:
        row["promised"] = rule.promise.coverage
        row["contradicted"] = promises.is_contradicted(rule.promise, share, number)
    return row | _of_kind(known, rule, found) | _of_truths(examples, rule, found)


def _of_kind(known: Scores, rule: SetRule, found: Measured) -> dict[str, Any]:
    """What a row has only for some kinds of rules: utilities, costs, answers."""
    if rule.name == "utility":
        num_classes = known.values.shape[1]
        utility: Any = rule.rule
        worth = utility.worth(num_classes)
        ks = [k for k in _USUAL_KS if k <= num_classes]
        return {
            "utility": _mean_worth(found.hits, found.sizes, worth),
            "utility_of": {f"top_k={k}": _mean_worth(*_top_k(known, k), worth) for k in ks},
        }
    if found.costs is not None:
        return {"mean_cost": float(found.costs.mean())}
    if rule.name != "max_error":
        return {}
    answers = int(found.sizes.sum())
    wrong = 1 - int(found.of_labels.sum()) / answers if answers else None
    return {"answered": answers / len(known), "error_of_answers": wrong}


def _of_truths(examples: Evaluated, rule: SetRule, found: Measured) -> dict[str, Any]:
    """What a row has for several labels, with a taxonomy, and by class."""
    row: dict[str, Any] = {}
    if found.having is not None:
        row |= _several_labels(examples.known, found)
    tree = examples.known.classes.tree
    if found.by_rank is not None and tree is not None:
        row |= _ranks_of_sets(found.by_rank, tree)
    if rule.rule.conformal is not None:
        row["least_covered"] = class_rows(examples, found)[:MOST_LISTED]
    return row


def _mean_worth(hits: np.ndarray, sizes: np.ndarray, worth: np.ndarray) -> float:
    """The mean utility of sets; an empty set never has the label."""
    return float((hits * worth[np.maximum(sizes, 1) - 1]).mean(dtype=np.float64))


def _top_k(scores: Scores, k: int) -> tuple[np.ndarray, np.ndarray]:
    sizes = np.full(len(scores), k)
    if scores.truths is None or scores.class_ranks is None:
        return scores.ranks < k, sizes
    return scores.truths.mean(scores.class_ranks < k), sizes


def _several_labels(scores: Scores, found: Measured) -> dict[str, float]:
    """The part of the labels that sets miss, and their F1 scores over examples and classes."""
    truths = scores.truths
    assert truths is not None
    assert found.having is not None
    are_hits = found.inside & (truths.shares > 0)
    hits, labels = are_hits.sum(axis=1), (truths.shares > 0).sum(axis=1)
    # The sets and the labels that have each class.
    having = truths.occurrences(scores.num_classes)
    having[: len(found.having)] += found.having
    of_classes = np.bincount(truths.classes[are_hits], minlength=scores.num_classes)
    counted = having > 0
    return {
        "missed_labels": float(1 - (hits / labels).mean()),
        "example_f1": float((2 * hits / (found.sizes + labels)).mean()),
        "macro_f1": float((2 * of_classes[counted] / having[counted]).mean()),
    }


def _ranks_of_sets(by_rank: np.ndarray, tree: ClassTree) -> dict[str, Any]:
    """How good sets are at each rank; their mean height, of those that are not empty; names."""
    *of_ranks, heights, names = by_rank.T.astype(np.float64)
    pairs = zip(tree.ranks, of_ranks[::2], of_ranks[1::2], strict=False)
    answered = heights[heights >= 0]
    return {
        "ranks": {
            rank: {"coverage": float(hits.mean()), "set_size": float(sizes.mean())}
            for rank, hits, sizes in pairs
        },
        "height": float(answered.mean()) if answered.size else None,
        "names": float(names.mean()),
    }


def class_rows(examples: Evaluated, found: Measured) -> list[dict[str, Any]]:
    """The classes that have examples: the least covered first, then those with more examples."""
    # If an example has several classes, each counts with its share.
    weights, hits = examples.sums(found)
    present = np.flatnonzero(weights)
    coverages, counts = hits[present] / weights[present], np.maximum(np.rint(weights[present]), 1)
    order = np.lexsort((-counts, coverages))
    return [
        {
            "class": examples.known.classes.names[label],
            "index": label,
            "examples": int(count),
            "coverage": coverage,
        }
        for label, count, coverage in zip(
            *(one[order].tolist() for one in (present, counts, coverages)), strict=True
        )
    ]
