"""Calibration with examples whose label is a distribution: the votes of several people."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics, _sharding
from topk_jax.sets._calibration import Calibration
from topk_jax.sets._quantiles import compute_conformal_quantile

__all__ = ["vote_quantile"]


@_class_axis.refuse_split
def vote_quantile(
    scores: ArrayLike,
    plausibilities: ArrayLike,
    *,
    error: float,
    num_samples: int | None = None,
    key: jax.Array | None = None,
) -> jax.Array:
    r"""The conformal quantile of labels that are votes.

    Every class of an example counts with its plausibility :math:`\lambda_i`:

    .. math::
        \hat q = \min \Big\{ q : \frac{1 + \sum_i \sum_{y : s_{iy} > q} \lambda_{iy}}{n + 1}
        \le \varepsilon \Big\}

    Or each example gets m labels (`num_samples`), which are drawn from its plausibilities:

    .. math::
        \hat q = \text{the } r\text{-th smallest of the } m n \text{ scores of the labels}, \qquad
        r = \lceil (1 - \varepsilon) \, m \, (n + 1) \rceil

    If r exceeds m n, or there is no such q, it is infinity. A label that is drawn from the
    plausibilities of a new example is in its set with a probability of at least
    :math:`1 - \varepsilon`: the expected plausibility outside of the set is a risk, which
    `risk_controlled_index` would control in the same way. Stutz et al. prove it for m = 1, and
    :math:`1 - 2 \varepsilon` for other m. A larger m makes the quantile depend less on `key`, and
    without `num_samples` it does not depend on draws. The most voted class as the label would
    promise nothing about the other plausible classes.

    With equal plausibilities of all labels of an example, which may have several, the expected part
    of the labels that a set misses is at most :math:`\varepsilon`.

    Args:
        scores: floating-point scores of all classes that are smaller for classes that fit better,
            `[..., L]`; at least one example.
        plausibilities: the part of the votes that each class has, `[..., L]`: at least 0, with sum
            1 over the classes, up to 1e-4, or twice the eps of their type if that is more.
        error: static rate of missed labels, a real number in [0, 1), interpreted as its shortest
            decimal.
        num_samples: the static number m of labels of each example, at least 1; None without draws.
        key: one key of `jax.random.key`, with `num_samples`.

    Returns:
        A scalar for `score_set` or `conformal_set`, in the scores' dtype (float32 or float64); NaN
        if a score is NaN, or if the traced plausibilities of an example are not a distribution.
        Without draws the sum above q may exceed the allowed one by 16 roundings, or half a vote if
        that is less.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: the shapes do not match, there is no example, concrete plausibilities are
            negative or do not add up to 1, `error` or `num_samples` is outside its range, or one
            of `num_samples` and `key` is missing.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores = jnp.array([[0.25, 0.75], [0.5, 0.5], [0.375, 0.625]])
        >>> votes = jnp.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
        >>> print(sets.vote_quantile(scores, votes, error=0.5))
        0.5
        >>> print(sets.vote_quantile(
        ...     scores, votes, error=0.5, num_samples=2, key=jax.random.key(0)))
        0.5

    See Also:
        `conformal_quantile`, `risk_controlled_index`, `expect_over_labels`.

    Source: Stutz et al. (2023), "Conformal prediction under ambiguous ground truth", algorithm 1;
    Angelopoulos et al. (2024), "Conformal risk control".
    """
    values = _checks.floating_array(scores, "scores")
    _checks.some_examples(values, "scores")
    votes = _checks.distributions(plausibilities, "plausibilities", values.shape, values.dtype)
    rate = _checks.static_error(error)
    if (num_samples is None) != (key is None):
        raise ValueError(
            f"num_samples and key must be given together, got {num_samples} and {key}."
        )
    valid = ~jnp.isnan(values).any() & ~jnp.isnan(votes).any()
    if num_samples is None or key is None:
        number = math.prod(values.shape[:-1])
        allowed = float(rate * (number + 1) - 1)
        quantile = _quantile(_sharding.gather(values), _sharding.gather(votes), allowed)
        return _numerics.nan_unless(valid, quantile)
    num_samples = _checks.static_integer(num_samples, "num_samples", minimum=1)
    key = _checks.random_keys(key, "key", ())
    uniform = jax.random.uniform(key, (num_samples, *values.shape[:-1]), values.dtype)
    labels = jax.vmap(partial(_drawn, votes))(uniform)
    drawn = jax.vmap(partial(_numerics.score_of_label, values))(labels)
    number = labels[0].size
    rank = math.ceil(num_samples * (number + 1) * (1 - rate))
    all_scores = _sharding.gather(drawn).reshape(-1)
    calibration = Calibration(all_scores, jnp.zeros_like(all_scores, jnp.int32), valid)
    return compute_conformal_quantile(calibration, rank)


@jax.jit
def _quantile(values: jax.Array, votes: jax.Array, allowed: float) -> jax.Array:
    """The smallest score above which there are at most `allowed` votes.

    Hazard: sums of many votes lose the digits of the last ones. Choice: sums from the largest score
    on, which stay small, with 16 roundings to spare, as in `label_shift_quantiles`: five fifths are
    one. Votes that are all in one class make integers, which half a vote does not change.
    """
    spare = jnp.clip(_numerics.rounding_to_spare(votes.dtype) * jnp.maximum(allowed, 1.0), 0.0, 0.5)
    ascending, weights = jax.lax.sort((values.reshape(-1), votes.reshape(-1)), num_keys=1)
    above = jax.lax.cumsum(weights, reverse=True) - weights
    first = (above > allowed + spare).sum()
    return jnp.where(allowed < 0, jnp.inf, ascending[jnp.minimum(first, ascending.size - 1)])


def _drawn(votes: jax.Array, uniform: jax.Array) -> jax.Array:
    """A class of each example [...], drawn by numbers in [0, 1).

    Hazard: rounding may put the last number above all sums. Choice: at most the last class with a
    vote.
    """
    sums = jnp.cumsum(votes, axis=-1)
    total = sums[..., -1:]
    by_number = (sums <= uniform[..., None] * total).sum(axis=-1)
    return jnp.minimum(by_number, (sums < total).sum(axis=-1))
