"""Thresholds of sets, calibrated on the predictions for a split."""

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal

import jax
import numpy as np

from topk_jax import sets
from train.evaluation import example_groups
from train.evaluation.predictions import Predictions, chunks
from train.foundation.errors import UserError

# Half of the bits of a number, and how many values they have.
_HALF_BITS = 16
_HALF = 2**_HALF_BITS


class NoLimitsError(UserError):
    """The examples are too few for what their sets are to promise."""


def average_k_thresholds(predictions: Predictions, ks: Sequence[int]) -> dict[int, jax.Array]:
    """For each K, the threshold whose sets have K classes on average over the split."""
    return {k: average_k_threshold(predictions.scores, k) for k in ks}


def average_k_threshold(scores: np.ndarray, k: float) -> jax.Array:
    """The threshold whose sets of scores [n, L] have K classes on average, in O(K n) memory."""
    calibrator = sets.AverageKCalibrator(k, num_examples=len(scores))
    for chunk in chunks(scores):
        calibrator.update(scores[chunk])
    return calibrator.threshold()


def conformal_threshold(predictions: Predictions, coverage: float) -> float:
    """The threshold whose sets have the label of a new example with at least that probability.

    If the truth is more than one class, it is the expected share of the truth.

    Raises:
        UserError: the examples are too few to promise that.
    """
    check_enough(len(predictions.labels), coverage)
    error = error_in_binary(coverage)
    if predictions.truths is not None:
        scores, shares = predictions.of_known_truths(_scores_of)
        return -float(sets.vote_quantile(-scores, shares, error=error))
    # It is one of the scores of the labels. So these are given as the scores of a single class.
    # `conformal_threshold` refuses scores that are not probabilities.
    of_labels = scores_of_labels(predictions)
    only_class = np.zeros(len(of_labels), np.int32)
    return -float(sets.conformal_quantile(-of_labels, only_class, error=error))


def one_of_group_threshold(predictions: Predictions, coverage: float) -> float:
    """The same for one example of a new group, drawn at random, from examples that have groups.

    Raises:
        UserError: the groups are too few to promise that.
    """
    assert predictions.groups is not None
    names, of_examples = example_groups.numbered(predictions.groups)
    check_enough(len(names), coverage, "groups")
    quantile = sets.hierarchical_quantile(
        -scores_of_labels(predictions),
        np.zeros_like(of_examples),
        of_examples,
        error=error_in_binary(coverage),
        num_groups=len(names),
    )
    return -float(quantile)


def scores_of_labels(predictions: Predictions) -> np.ndarray:
    """The score of the label of each example of a known class, [n]; see `drawn_labels`."""
    labels = predictions.drawn_labels
    return np.concatenate(
        [_scores_of(predictions.scores[c], labels[c]) for c in chunks(predictions.scores)]
    )


def _scores_of(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]


def average_error_threshold(scores: np.ndarray, error: float) -> float:
    """The threshold whose sets miss that probability on average over the scores [n, L]."""
    if not isinstance(scores, np.memmap):
        return float(sets.average_error_threshold(scores, error=error))
    # Scores in a file are read twice. Nonnegative numbers have the order of their bits. The first
    # pass sums the numbers by the upper half of their bits. The second pass sums by the lower half,
    # in the upper half at which the sum of all smaller numbers passes what may be missed.
    allowed = float(Decimal(repr(error)) * len(scores))
    sums = np.zeros(1 + _HALF // 2)
    for values, bits in _values_and_bits(scores):
        sums += np.bincount(bits >> _HALF_BITS, weights=values, minlength=len(sums))
    upper = int(np.searchsorted(sums.cumsum(), allowed, side="right"))
    if upper == len(sums):
        return math.inf
    missed, sums = sums[:upper].sum(), np.zeros(_HALF)
    for values, bits in _values_and_bits(scores):
        here = bits >> _HALF_BITS == upper
        sums += np.bincount(bits[here] & (_HALF - 1), weights=values[here], minlength=_HALF)
    lower = int(np.searchsorted(missed + sums.cumsum(), allowed, side="right"))
    # The two passes round their sums differently, so `lower` is at most the largest lower half.
    bits = np.array((upper << _HALF_BITS) + min(lower, _HALF - 1), np.int32)
    return float(bits.view(np.float32))


def _values_and_bits(scores: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers in 32 bits that are not negative, and their bits as integers, by chunks."""
    for chunk in chunks(scores):
        # An addition makes -0 a 0.
        values = scores[chunk].ravel() + np.float32(0)
        yield values, values.view(np.int32)


def check_enough(number: int, coverage: float, what: str = "examples") -> None:
    """Raises `UserError` if so few examples can only promise a coverage by sets of all classes."""
    fewest = fewest_examples(coverage)
    if number < fewest:
        raise UserError(
            f"a coverage of {coverage} needs at least 1 / {error_of(coverage)} - 1 = {fewest} "
            f"{what} to calibrate on; there are {number}"
        )


def fewest_examples(coverage: float) -> int:
    """The fewest examples with which sets can promise a coverage without having all classes."""
    return math.ceil(1 / error_of(coverage) - 1)


def error_of(coverage: float) -> Decimal:
    """1 - coverage in decimals, as the user wrote them: 0.05 for 0.95."""
    return 1 - Decimal(repr(coverage))


def error_in_binary(coverage: float) -> float:
    """1 - coverage as a float, below 1: for a tiny coverage it would be rounded to 1."""
    return min(float(error_of(coverage)), math.nextafter(1, 0))
