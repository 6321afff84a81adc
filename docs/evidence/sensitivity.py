"""The primary contrasts once more, with standard errors by an analysis of variance.

The bootstrap of the design counts what neither the seed nor the test example explains more than
once, so that its standard errors are too large rather than too small. These are not.
"""

import base64
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from answers import Answer, Planned, answered, primary, result, results

from train.series.contrasts import Contrast, with_error


@cache
def answers() -> list[Answer]:
    """The answers that these standard errors would have given, in the order of the questions."""
    return answered([_found(planned) for planned in primary()])


def standard_error(differences: np.ndarray, labels: np.ndarray, *, macro: bool) -> float:
    """That of the mean difference, by an analysis of variance of seeds and test examples.

    Seeds are random, and so are the examples of each class; the classes are fixed. With V_s the
    variance between seeds of their means over S, V_e the variance between examples of their means
    within classes, and V_r that of the interaction, both of which have the interaction in them,
    the variance is V_s + V_e - V_r.

    Args:
        differences: of the hits of two classifiers, [S, n].
        labels: the classes of the examples, [n].
        macro: whether the accuracies are means over the classes.
    """
    num_seeds, num_examples = differences.shape
    classes, sizes = np.unique(labels, return_counts=True)
    of_seeds = np.zeros(num_seeds)
    between_examples = interaction = 0.0
    for label, size in zip(classes, sizes, strict=True):
        of_class = differences[:, labels == label].astype(np.float64)
        weight = 1 / (len(classes) * size) if macro else 1 / num_examples
        of_seeds += weight * of_class.sum(axis=1)
        if size == 1:
            # An example that is alone in its class tells nothing of others.
            continue
        of_examples = of_class.mean(axis=0)
        residuals = of_class - of_examples - of_class.mean(axis=1, keepdims=True) + of_class.mean()
        between_examples += weight**2 * size * of_examples.var(ddof=1)
        mean_square = (residuals**2).sum() / ((size - 1) * (num_seeds - 1))
        interaction += weight**2 * size * mean_square / num_seeds
    between_seeds = of_seeds.var(ddof=1) / num_seeds
    # A component of the variance is not negative, though its estimate may be.
    variance = max(between_seeds + between_examples - interaction, between_seeds, between_examples)
    return math.sqrt(variance)


def _found(planned: Planned) -> Contrast:
    of_study, contrast = results(planned.study), result(planned)
    metric = contrast["metric"]
    hits = {arm["name"]: arm["hits"] for arm in of_study["arms"]}
    first, second = (_bits(hits[contrast[side]][metric]) for side in ("first", "second"))
    error = standard_error(
        first.astype(np.int8) - second,
        _labels(of_study["labels"]),
        macro=metric.startswith("macro_"),
    )
    return with_error(contrast["numbers"]["estimate"], error, planned.degrees_of_freedom)


def _bits(hits: Mapping[str, Any]) -> np.ndarray:
    packed = np.frombuffer(base64.b64decode(hits["packed_bits"]), np.uint8)
    return np.unpackbits(packed, count=math.prod(hits["shape"])).reshape(hits["shape"])


def _labels(labels: Mapping[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(labels["little_endian_int32"]), "<i4")
