"""Thresholds of sets, calibrated on the predictions for a split."""

import math
from collections.abc import Sequence
from decimal import Decimal

import jax
import numpy as np

from topk_jax import sets
from train.evaluation.predictions import Predictions, chunks
from train.foundation.errors import UserError


def average_k_thresholds(predictions: Predictions, ks: Sequence[int]) -> dict[int, jax.Array]:
    """For each K, the threshold whose sets have K classes on average over the split."""
    return {k: average_k_threshold(predictions.scores, k) for k in ks}


def average_k_threshold(scores: np.ndarray, k: float) -> jax.Array:
    """The threshold whose sets of scores [n, L] have K classes on average, in O(K n) memory."""
    calibrator = sets.AverageKCalibrator(k, num_examples=len(scores))
    for chunk in chunks(len(scores)):
        calibrator.update(scores[chunk])
    return calibrator.threshold()


def conformal_threshold(predictions: Predictions, coverage: float) -> float:
    """The threshold whose sets have the label of a new example with at least that probability.

    Raises:
        UserError: the examples are too few to promise that.
    """
    check_enough(len(predictions.labels), coverage)
    error = error_in_binary(coverage)
    return float(sets.conformal_threshold(predictions.scores, predictions.labels, error=error))


def check_enough(number: int, coverage: float) -> None:
    """Raises `UserError` if so few examples can only promise a coverage by sets of all classes."""
    fewest = fewest_examples(coverage)
    if number < fewest:
        raise UserError(
            f"a coverage of {coverage} needs at least 1 / {error_of(coverage)} - 1 = {fewest} "
            f"examples to calibrate on; there are {number}"
        )


def fewest_examples(coverage: float) -> int:
    """The fewest examples with which sets can promise a coverage without having all classes."""
    return math.ceil(1 / error_of(coverage) - 1)


def error_of(coverage: float) -> Decimal:
    """1 - coverage in decimals, as the user wrote them: 0.05 for 0.95."""
    return 1 - Decimal(repr(coverage))


def error_in_binary(coverage: float) -> float:
    """1 - coverage as a float. It stays below 1, which that of a tiny coverage is rounded to."""
    return min(float(error_of(coverage)), math.nextafter(1, 0))
