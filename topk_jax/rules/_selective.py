"""Answers of one class, given if a classifier is sure enough."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import sets
from topk_jax.rules._calibration import Calibration
from topk_jax.rules._numbers import percent
from topk_jax.rules._promise import TooFewError
from topk_jax.rules._rule import Rule

# The probability that calibration examples make a threshold whose errors are more.
_DELTA = 0.05


class MaxError(Rule):
    """The likeliest class if it is likely enough; otherwise no class."""

    name = "max_error"
    words = "the likeliest class or no answer; at most this share of the answers is wrong"

    def find_limits(self, examples: Calibration) -> ArrayLike:
        surest = examples.map(lambda part: part.max(axis=-1))
        hits = examples.map(lambda part: part.argmax(axis=-1)) == examples.classes[:, 0]
        error = float(self.value)
        found = sets.selective_threshold(surest, hits, error=error, delta=_DELTA)
        if found == jnp.inf:
            raise TooFewError(
                f"max_error={error:g} cannot be promised: the {len(examples):,} examples to "
                "calibrate on are too few, or too often wrong, for any answers"
            )
        return found

    def choose(self, scores: jax.Array) -> jax.Array:
        surest = jnp.max(scores, axis=-1, keepdims=True)
        return sets.top_k_set(scores, k=1) & (surest > self.fitted_limits)

    def describe_sets(self) -> str:
        where = ", if the classifier is sure enough; otherwise there is no answer"
        if self.limits is not None:
            limit = float(self.limits)
            exceeds = f", if that exceeds {limit:.4g}; otherwise there is no answer"
            where = "" if np.isneginf(limit) else exceeds
        return (
            f"An answer is the class of highest probability{where}. Of the answers at most "
            f"{percent(float(self.value))} are wrong, for new examples like {self.on}. This "
            f"holds with a probability of at least {percent(1 - _DELTA)} over the choice of these."
        )
