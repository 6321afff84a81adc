"""Losses with the better one of their heads, which the design added later."""

import base64
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from answers import QUESTIONS, results

from train.series.contrasts import Contrast, with_error

# By study: the losses, and the loss that they are compared with. The heads of a loss are its arms.
_LOSSES: Mapping[str, tuple[Sequence[str], str]] = {
    **dict.fromkeys(
        QUESTIONS["tail"],
        (("imbalanced noised hinge", "imbalanced expected hinge"), "cross-entropy"),
    ),
    "noise_organs_40": (("noised hinge", "expected hinge", "smooth top-K hinge"), "cross-entropy"),
    **dict.fromkeys(
        ("average_countries_5", "average_tiny_imagenet_5"),
        (("average-K",), "cross-entropy with temperature"),
    ),
}


@dataclass(frozen=True)
class Difference:
    """A difference of two losses, each with its better head.

    Attributes:
        study: the name of the study.
        first: the arm of the loss.
        second: the arm of the other one.
        found: the numbers.
    """

    study: str
    first: str
    second: str
    found: Contrast


@cache
def differences() -> list[Difference]:
    """All of them, in the order of the questions."""
    return [
        _difference(study, loss, other)
        for study, (losses, other) in _LOSSES.items()
        for loss in losses
    ]


def standard_error(differences: np.ndarray, labels: np.ndarray, *, macro: bool) -> float:
    """The deviation of the bootstrap of the design, of which no resample is drawn.

    Let d_s be what a seed contributes to the difference, and e_si what an example contributes under
    that seed beyond the mean of its class. Then the variance of a resample is the sum of the
    squares of d_s - mean(d), of (1 - 1/S) times those of sum_s e_si, and of those of e_si. The
    factor S / (S - 1) is that of the design.

    Args:
        differences: of the hits of two classifiers, [S, n].
        labels: the classes of the examples, [n].
        macro: whether the accuracies are means over the classes.
    """
    num_seeds, num_examples = differences.shape
    classes, sizes = np.unique(labels, return_counts=True)
    of_seeds = np.zeros(num_seeds)
    of_examples = of_both = 0.0
    for label, size in zip(classes, sizes, strict=True):
        weight = 1 / (len(classes) * size) if macro else 1 / num_examples
        share = differences[:, labels == label].astype(np.float64) * weight / num_seeds
        of_seeds += share.sum(axis=1)
        centred = share - share.mean(axis=1, keepdims=True)
        of_examples += float((centred.sum(axis=0) ** 2).sum())
        of_both += float((centred**2).sum())
    between_seeds = float(((of_seeds - of_seeds.mean()) ** 2).sum())
    variance = between_seeds + (1 - 1 / num_seeds) * of_examples + of_both
    return math.sqrt(variance * num_seeds / (num_seeds - 1))


def _difference(study: str, loss: str, other: str) -> Difference:
    of_study = results(study)
    first, second = (_better_head(of_study, one) for one in (loss, other))
    found = difference_of_hits(of_study, first, second, of_study["select_by"])
    return Difference(study, first["name"], second["name"], found)


def difference_of_hits(
    of_study: Mapping[str, Any], first: Mapping[str, Any], second: Mapping[str, Any], metric: str
) -> Contrast:
    """The difference of two arms of a study in a metric whose hits the results have."""
    hits = [_bits(arm["hits"][metric]) for arm in (first, second)]
    values = hits[0].astype(np.int8) - hits[1]
    labels = np.frombuffer(base64.b64decode(of_study["labels"]["little_endian_int32"]), "<i4")
    macro = metric.startswith("macro_")
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    weights = 1 / (len(sizes) * sizes[classes]) if macro else np.full(len(labels), 1 / len(labels))
    # The middle between two numbers of two digits may not depend on the order of the sum.
    return with_error(
        round(float((values @ weights).mean()), 12),
        standard_error(values, labels, macro=macro),
        len(values) - 1,
    )


def difference_of_accuracies(by_seed: np.ndarray) -> Contrast:
    """The mean of the differences of two accuracies by seed, with the error of only the seeds."""
    error = float(by_seed.std(ddof=1)) / math.sqrt(len(by_seed))
    return with_error(float(by_seed.mean()), error, len(by_seed) - 1)


def _better_head(of_study: Mapping[str, Any], loss: str) -> Mapping[str, Any]:
    """The arm of the loss whose best validation accuracies have the highest mean."""
    arms = [arm for arm in of_study["arms"] if arm["name"].partition(", ")[0] == loss]
    return max(
        arms,
        key=lambda arm: statistics.mean(max(run["validation_by_epoch"]) for run in arm["runs"]),
    )


def _bits(hits: Mapping[str, Any]) -> np.ndarray:
    packed = np.frombuffer(base64.b64decode(hits["packed_bits"]), np.uint8)
    return np.unpackbits(packed, count=math.prod(hits["shape"])).reshape(hits["shape"])
