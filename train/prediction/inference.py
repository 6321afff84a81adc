"""Examples to probabilities and sets, one function for `jax.jit` and `jax.export`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.trained import TrainedClassifier

# uint8 images [n, height, width, channels], features [n, d] or characters [n, length], to
# probabilities [n, L], float32, and sets [n, L].
Inference = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def make(classifier: TrainedClassifier, rule: CalibratedRule) -> Inference:
    """The inference of a classifier and a rule, a pure function."""
    scores = classifier.scores()

    def infer(inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        probabilities = scores(inputs).astype(jnp.float32)
        return probabilities, rule.choose(probabilities)

    return infer
