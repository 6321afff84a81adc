"""Rules that make sets of classes of scores."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import sets

# Scores [n, L] to booleans [n, L].
SetRule = Callable[[ArrayLike], jax.Array]


def top_k(k: int) -> SetRule:
    """The K classes of largest score."""
    return partial(sets.top_k_set, k=k)


def at_threshold(threshold: float | jax.Array) -> SetRule:
    """The classes whose scores reach a threshold."""
    return lambda scores: sets.threshold_set(scores, threshold)


def surest(threshold: float) -> SetRule:
    """The class of largest score if that exceeds a threshold; otherwise no class."""
    return lambda scores: (
        sets.top_k_set(scores, k=1)
        & (jnp.max(jnp.asarray(scores), axis=-1, keepdims=True) > threshold)
    )


def adaptive(error: float) -> SetRule:
    """The smallest set of each example whose probabilities add up to 1 - error."""
    return partial(sets.adaptive_set, error=error)
