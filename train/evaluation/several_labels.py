"""The quality of sets and of scores if examples have several labels that are present at once."""

from typing import Any

import numpy as np

from topk_jax import metrics
from train.data.truths import SEVERAL
from train.evaluation.predictions import Predictions, chunks
from train.evaluation.set_rules import SetRule
from train.evaluation.summaries import Sets

# Scores of a few classes of all examples, which are sorted together.
_MOST_SCORES = 2**24


def describe_sets(found: Sets, examples: Predictions, rule: SetRule) -> dict[str, Any]:
    """The part of the labels that sets miss, and their F1 scores; empty for other truths.

    Args:
        found: the quality of the sets.
        examples: the examples of the sets.
        rule: what made the sets.
    """
    truths = examples.truths
    if truths is None or truths.kind != SEVERAL or found.of_classes is None:
        return {}
    are_hits = found.of_classes & (truths.shares > 0)
    hits, labels = are_hits.sum(axis=1), (truths.shares > 0).sum(axis=1)
    num_classes = examples.num_classes
    # The sets and the labels that have each class.
    having = truths.occurrences(num_classes)
    for chunk in chunks(examples.scores):
        of_sets = np.asarray(rule(examples.scores[chunk])).sum(axis=0)
        having[: len(of_sets)] += of_sets
    hits_of_classes = np.bincount(truths.classes[are_hits], minlength=num_classes)
    counted = having > 0
    return {
        "false_negative_rate": float(1 - (hits / labels).mean()),
        "example_f1": float((2 * hits / (found.sizes + labels)).mean()),
        "macro_f1": float((2 * hits_of_classes[counted] / having[counted]).mean()),
    }


def mean_average_precision(examples: Predictions) -> float | None:
    """The mAP over the known classes that are a label; None for other truths."""
    truths = examples.truths
    if truths is None or truths.kind != SEVERAL:
        return None
    number, num_classes = examples.scores.shape
    width = max(1, _MOST_SCORES // number)
    total, counted = 0.0, 0
    for start in range(0, num_classes, width):
        block = slice(start, min(start + width, num_classes))
        size = block.stop - start
        scores = np.concatenate([examples.scores[c][:, block] for c in chunks(examples.scores)])
        places = truths.classes - start
        rows, columns = np.nonzero((truths.shares > 0) & (places >= 0) & (places < size))
        targets = np.zeros((number, size), bool)
        targets[rows, places[rows, columns]] = True
        present = int(targets.any(axis=0).sum())
        if present:
            total += present * float(metrics.mean_average_precision(scores, targets))
            counted += present
    return total / counted if counted else None
