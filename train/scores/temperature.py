"""Probabilities at a temperature that is fitted on the validation split."""

import dataclasses
import math

import jax
import numpy as np
from jax.typing import ArrayLike
from scipy import optimize

from topk_jax import sets
from train.scores.scores import Scores, collect

# Bounds of the logarithm of the inverse temperature; `sets.temperature` has the same.
_LARGEST = 20 * math.log(2)
# The width at which the search ends: the temperature is rounded to 32 bits.
_TOLERANCE = 1e-8


def fit(scores: Scores) -> float:
    """The temperature with the smallest mean cross-entropy of scores that are logits."""
    if not isinstance(scores.values, np.memmap):
        return float(sets.temperature(scores.values, scores.drawn))
    # Logits in a file; each step reads it a few rows at a time.
    smallest = _sum_of_slopes(-_LARGEST, scores)
    if math.isnan(smallest):
        return math.nan
    if smallest >= 0:
        return math.exp(_LARGEST)
    if _sum_of_slopes(_LARGEST, scores) <= 0:
        return math.exp(-_LARGEST)
    # The scores are an argument: SciPy would keep a closure, and its file, for too long.
    bounds = (-_LARGEST, _LARGEST)
    return math.exp(-optimize.brentq(_sum_of_slopes, *bounds, args=(scores,), xtol=_TOLERANCE))


def _sum_of_slopes(log_inverse: float, scores: Scores) -> float:
    labels, inverse = scores.drawn, math.exp(log_inverse)
    parts = (_slopes(scores.values[one], labels[one], inverse).sum() for one in scores.chunks())
    return math.fsum(parts)


def _slopes(logits: np.ndarray, labels: np.ndarray, inverse: float) -> np.ndarray:
    """The slopes of the cross-entropies in the inverse temperature, E[s] - s_y, float64 [n]."""
    scores = logits.astype(np.float64)
    scores -= scores.max(axis=-1, keepdims=True)
    weights = np.exp(inverse * scores)
    # A masked class has a weight of 0, and a score of -inf.
    finite = np.where(weights > 0, scores, 0)
    means: np.ndarray = (weights * finite).sum(axis=-1) / weights.sum(axis=-1)
    return means - scores[np.arange(len(labels)), labels]


@jax.jit
def probabilities(logits: ArrayLike, temperature: ArrayLike) -> jax.Array:
    """The softmax of logits [n, L] that are divided by the temperature."""
    return jax.nn.softmax(logits / temperature)


def with_probabilities(scores: Scores, temperature: float) -> Scores:
    """Scores that are logits, with their probabilities instead; the rest stays as it is."""
    parts = (
        np.asarray(probabilities(scores.values[chunk], np.float32(temperature)))
        for chunk in scores.chunks()
    )
    return dataclasses.replace(scores, values=collect(parts, len(scores)))
