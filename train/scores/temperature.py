"""Probabilities at a temperature that is fitted on the validation split."""

import dataclasses

import jax
import numpy as np
from absl import logging
from jax.typing import ArrayLike

from topk_jax import sets
from train.scores.scores import MOST_IN_MEMORY, Scores, collect


def fit(scores: Scores) -> float:
    """The temperature with the smallest mean cross-entropy of scores that are logits.

    If there are more logits than stay in memory, every k-th example counts, as many as would stay.
    """
    step = -(-4 * scores.values.size // MOST_IN_MEMORY)
    if step > 1:
        logging.warning("the temperature is fitted on one of %d validation examples", step)
    return float(sets.temperature(scores.values[::step], scores.drawn[::step]))


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
