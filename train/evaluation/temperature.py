"""Probabilities at a temperature that is fitted on the validation split."""

import jax
import numpy as np
from jax.typing import ArrayLike

from topk_jax import sets
from train.evaluation import stored_scores
from train.evaluation.predictions import Predictions, chunks


def fit(found: Predictions) -> float:
    """The temperature with the smallest mean cross-entropy of predictions that have logits."""
    return float(sets.temperature(found.scores[:], found.labels))


@jax.jit
def probabilities(logits: ArrayLike, temperature: ArrayLike) -> jax.Array:
    """The softmax of logits [n, L] that are divided by the temperature."""
    return jax.nn.softmax(logits / temperature)


def with_probabilities(found: Predictions, temperature: float) -> Predictions:
    """Predictions that have logits, with their probabilities instead; the rest stays as it is."""
    parts = (
        np.asarray(probabilities(found.scores[chunk], np.float32(temperature)))
        for chunk in chunks(found.scores)
    )
    scores = stored_scores.collected(parts, len(found.scores))
    return Predictions(found.loss, scores, found.labels, found.ranks)
