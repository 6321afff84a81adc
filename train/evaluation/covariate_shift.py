"""Conformal sets for examples whose inputs have another distribution than those calibrated on."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from topk_jax import sets
from train.evaluation import summaries, thresholds
from train.evaluation.predictions import Predictions, chunks
from train.evaluation.summaries import Sets


@dataclass(frozen=True, eq=False)
class LogWeights:
    """The logarithms of the density of new inputs divided by the density of calibration inputs.

    Attributes:
        examples: the logarithms for the examples that are evaluated, [n].
        calibration: the logarithms for the examples that are calibrated on, [m].
    """

    examples: np.ndarray
    calibration: np.ndarray

    def take(self, examples: np.ndarray, calibration: np.ndarray) -> "LogWeights":
        """The weights of some of the examples."""
        return LogWeights(self.examples[examples], self.calibration[calibration])


def find_sets(
    examples: Predictions, calibrated_on: Predictions, weights: LogWeights, error: float
) -> Sets:
    """The quality of sets that miss the label with that probability, whatever the shift.

    Each example has a threshold of its own, by `topk_jax.sets.covariate_shift_quantiles`.
    """
    quantiles = sets.covariate_shift_quantiles(
        weights.examples,
        -thresholds.scores_of_labels(calibrated_on),
        weights.calibration,
        error=error,
    )
    limits = -np.asarray(quantiles)[:, None]
    # The rule is called with one chunk after the other.
    places = chunks(examples.scores)
    return summaries.find_sets(
        examples, lambda scores: jnp.asarray(np.asarray(scores) >= limits[next(places)])
    )
