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
    """Refuses a coverage that so many examples cannot promise, but with all classes.

    Raises:
        UserError: they are too few.
    """
    fewest = fewest_examples(coverage)
    if number < fewest:
        raise UserError(
            f"a coverage of {coverage} needs at least 1 / {error_of(coverage)} - 1 = {fewest} "
            f"examples to calibrate on; there are {number}"
        )


def fewest_examples(coverage: float) -> int:
    """How many examples it takes at least; with fewer, only all classes could promise it."""
    return math.ceil(1 / error_of(coverage) - 1)


def error_of(coverage: float) -> Decimal:
    """What is left to 1, of a number taken as its decimals say: 0.05 for 0.95."""
    return 1 - Decimal(repr(coverage))


def error_in_binary(coverage: float) -> float:
    """The same as a float below 1; the error of a tiny coverage is 1 in binary."""
    return min(float(error_of(coverage)), math.nextafter(1, 0))
