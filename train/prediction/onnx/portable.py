"""The rules that search by the bits of floats, in forms that sort: the same sets, in JAX.

ONNX has no operation that takes floats for integers before opset 26, which browsers do not have.
Probabilities are summed as integers here too, so that sums are exact.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from train.evaluation.conformal_sets import ConformalSets
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.inference import Answer

# As in `topk_jax.sets`: probabilities are added up in units of 2^-30, exactly.
_UNIT = 2.0**30
_ORDERED = ("aps", "raps", "saps")

Choose = Callable[[jax.Array], jax.Array]


def answer(rule: CalibratedRule) -> Answer:
    """What `CalibratedRule.answer` answers, with operations that ONNX has."""
    choose = _form_of(rule)
    if choose is None:
        return rule.answer
    return lambda probabilities: rule.complete(choose(probabilities))


def _form_of(rule: CalibratedRule) -> Choose | None:
    """The sets [n, L] of probabilities [n, L]; None if the rule's own form will do."""
    if rule.worth is not None:
        return partial(_best_sets, rule.worth)
    conformal = rule.conformal
    score = {} if conformal is None else conformal.rule.score or {}
    if conformal is not None and score.get("kind") in _ORDERED:
        return partial(_ordered_sets, conformal)
    return None


def _ordered_sets(conformal: ConformalSets, probabilities: jax.Array) -> jax.Array:
    """The classes whose score, which grows from the likeliest class on, is at most the limit."""
    score = conformal.score
    num_classes = probabilities.shape[-1]
    # The rules take the smallest floats, of fewer digits, for 0.
    tiny = np.finfo(np.float32).tiny
    probabilities = jnp.where(probabilities < tiny, jnp.zeros((), jnp.float32), probabilities)
    descending, _ = jax.lax.top_k(probabilities, num_classes)
    ranks = np.arange(num_classes)
    unpenalized = score.get("unpenalized_ranks", 2)
    penalty = np.float32(score.get("rank_penalty", 0.0))
    penalties = penalty * np.maximum(ranks + 1 - unpenalized, 0).astype(np.float32)
    if score["kind"] == "saps":
        later = descending[:, :1] + penalties[None]
        scores = jnp.where(jnp.asarray(ranks == 0)[None], jnp.zeros((), jnp.float32), later)
    else:
        units = jnp.round(descending * _UNIT).astype(jnp.int32)
        above = jnp.cumsum(units, axis=-1) - units
        mass = jnp.minimum(above, int(_UNIT)).astype(jnp.float32) / _UNIT
        scores = mass + penalties[None]
    limit = jnp.asarray(conformal.limits, jnp.float32)
    # Scores grow with the rank. The first of equal probabilities has the score of all of them.
    kept = jnp.where(scores <= limit, descending, jnp.inf)
    return probabilities >= kept.min(axis=-1, keepdims=True)


def _best_sets(worth: np.ndarray, probabilities: jax.Array) -> jax.Array:
    """The sets of the largest expected utility, by size."""
    num_classes = probabilities.shape[-1]
    descending, classes = jax.lax.top_k(probabilities, num_classes)
    expected = worth[None] * jnp.cumsum(descending, axis=-1)
    size = expected.argmax(axis=-1) + 1
    chosen = jnp.arange(num_classes, dtype=size.dtype)[None] < size[:, None]
    return jnp.take_along_axis(chosen, places_of(classes), axis=-1)


def places_of(classes: jax.Array) -> jax.Array:
    """The place of each class in an order of the classes, [n, L] both."""
    # The smallest first: the inverse of a permutation.
    return jax.lax.top_k(-classes, classes.shape[-1])[1]
