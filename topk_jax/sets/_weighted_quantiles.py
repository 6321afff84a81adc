"""Conformal quantiles of weighted scores: shifts, votes, and groups of several examples.

All of them are the smallest score above which the weights sum to at most what the error allows.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics, _sharding
from topk_jax._entries import add_by_group
from topk_jax.sets._groups import group_indices
from topk_jax.sets._quantiles import Calibration, calibration_by_class, calibration_of, quantile_of

__all__ = [
    "covariate_shift_quantiles",
    "hierarchical_quantile",
    "label_shift_quantiles",
    "vote_quantile",
]


@_class_axis.refuse_split
def label_shift_quantiles(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    error: float,
    weights: ArrayLike,
    num_classes: int | None = None,
) -> jax.Array:
    r"""Conformal quantiles for new examples whose classes have other frequencies.

    With :math:`w_c = q_c / p_c` the frequency of class c among new examples divided by its
    frequency among these:

    .. math::
        \hat q_c = \min \Big\{ s : \sum_{i : s_i \le s} w_{y_i}
        \ge (1 - \varepsilon) \Big( \sum_i w_{y_i} + w_c \Big) \Big\},

    or infinity if there is none. If the examples of each class are distributed as here, a label is
    missed with a probability of at most :math:`\varepsilon`. A common factor of the weights does
    not change the result.

    Args:
        scores, labels, error, num_classes: see `topk_jax.sets`.
        weights: w above, finite, at least 0 and not all 0: one value per class, `[L]`, or a scalar.

    Returns:
        One quantile per class, `[L]`, for `conformal_set` or `score_set`; NaN if weights are traced
        and not as above, or if their sum overflows.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores, labels = jnp.array([0.25, 0.5, 0.75, 0.5]), jnp.array([0, 0, 0, 1])
        >>> print(sets.label_shift_quantiles(
        ...     scores, labels, error=0.25, weights=jnp.array([1.0, 3.0]), num_classes=2))
        [0.75  inf]

    Source: Podkopaev and Ramdas (2021), "Distribution-free uncertainty quantification for
    classification under label shift".
    """
    calibration, num_classes = calibration_by_class(scores, labels, num_classes)
    of_classes = _checks.relative_weights(weights, "weights", num_classes, calibration.scores.dtype)
    of_examples = _numerics.value_of_class(of_classes, calibration.labels)
    quantiles = _shifted_quantiles(
        of_classes, calibration.scores, of_examples, float(_checks.static_error(error))
    )
    have_ratios = (of_classes >= 0.0).all() & (of_classes > 0.0).any()
    return jnp.where(calibration.valid & have_ratios, quantiles, jnp.nan)


def covariate_shift_quantiles(
    log_weights: ArrayLike,
    calibration_scores: ArrayLike,
    calibration_log_weights: ArrayLike,
    *,
    error: float,
) -> jax.Array:
    r"""A conformal quantile for each new example, if new examples have another distribution.

    With :math:`w(x)` the density of new examples divided by the density of the calibration
    examples:

    .. math::
        \hat q(x) = \min \Big\{ s : \sum_{i : s_i \le s} w(x_i)
        \ge (1 - \varepsilon) \Big( \sum_i w(x_i) + w(x) \Big) \Big\},

    or infinity if there is none. If the labels of equal examples have the same distribution as
    before, a label is missed with a probability of at most :math:`\varepsilon`. The logit of a
    classifier that distinguishes new examples from these is log w(x), up to a constant, which does
    not change the result; its errors weaken the promise.

    Args:
        error: see `topk_jax.sets`.
        log_weights: log w(x) of the new examples, floating-point, `[...]`.
        calibration_scores: the scores of the labels of the calibration examples, `[n]`.
        calibration_log_weights: log w(x) of the calibration examples, `[n]`; minus infinity for
            examples that new ones are never like.

    Returns:
        One quantile per new example, `[...]`; vmap `score_set` over the examples and these. NaN
        where a weight is NaN or infinity; all are NaN if a score or a calibration weight is, or all
        calibration weights are 0.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores, weights = jnp.array([0.25, 0.5, 0.75]), jnp.array([1.0, 1.0, 4.0])
        >>> print(sets.covariate_shift_quantiles(
        ...     jnp.log(jnp.array([1.0, 2.0, 8.0])), scores, jnp.log(weights), error=0.25))
        [0.75 0.75  inf]

    Source: Tibshirani et al. (2019), "Conformal prediction under covariate shift", section 2.
    """
    zeros = np.zeros(np.shape(calibration_scores)[:1], np.int32)
    if np.ndim(calibration_scores) != 1:
        raise ValueError(
            "calibration_scores must be a vector of scores of labels, got shape "
            f"{np.shape(calibration_scores)}."
        )
    calibration = calibration_of(calibration_scores, zeros, name="calibration_scores")
    scores = calibration.scores
    known = _sharding.gather(
        _checks.real_array(
            calibration_log_weights, "calibration_log_weights", scores.shape, scores.dtype
        )
    )
    given = _checks.floating_numbers(log_weights, "log_weights").astype(scores.dtype)
    # Weights may overflow: the largest calibration weight is 1.
    largest = known.max()
    new, old = jnp.exp(given - largest), jnp.exp(known - largest)
    rate = float(_checks.static_error(error))
    quantiles = _shifted_quantiles(new, scores, old, rate)
    # A sum that a new weight makes infinite is not reached.
    quantiles = jnp.where(new == jnp.inf, jnp.inf, quantiles)
    # On the CPU a maximum of thousands of numbers can lose a NaN.
    valid = calibration.valid & ~jnp.isnan(known).any() & jnp.isfinite(largest)
    return _numerics.nan_unless(valid & (given < jnp.inf), quantiles)


@_class_axis.refuse_split
def hierarchical_quantile(
    scores: ArrayLike, labels: ArrayLike, groups: ArrayLike, *, error: float, num_groups: int
) -> jax.Array:
    r"""The conformal quantile for one example of a new group, from groups of several examples.

    .. math::
        \hat q = \min \Big\{ s : \sum_g \frac{1}{n_g} \#\{ i \in g : s_i \le s \}
        \ge (G + 1)(1 - \varepsilon) \Big\},

    or infinity if there is none; G is the number of groups with examples. If groups are
    exchangeable, and the examples of a group too, the set of an example that is drawn at random
    from a new group misses its label with a probability of at most :math:`\varepsilon`. The
    `conformal_quantile` of all examples alike would promise nothing for groups of several.

    Args:
        scores, labels, error: see `topk_jax.sets`.
        groups: the integer group of each example, of the labels' shape. An example whose group is
            outside [0, num_groups) is left out.
        num_groups: static largest number of groups.

    Returns:
        A scalar for `conformal_set` or `score_set`.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores, labels = jnp.array([0.5, 0.25, 0.25, 0.25, 0.75]), jnp.zeros(5, int)
        >>> groups = jnp.array([0, 1, 1, 1, 2])
        >>> print(sets.hierarchical_quantile(
        ...     scores, labels, groups, error=0.5, num_groups=3))
        0.5

    Source: Lee, Barber and Willett (2023), "Distribution-free inference with hierarchical data",
    theorem 1; Dunn, Wasserman and Ramdas (2022), "Distribution-free prediction sets for two-layer
    hierarchical models".
    """
    calibration = calibration_of(scores, labels)
    index, num_groups = group_indices(groups, np.shape(labels), num_groups)
    index = _sharding.gather(index).reshape(-1)
    sizes = add_by_group(num_groups, index, 1)
    dtype = calibration.scores.dtype
    shares = 1.0 / jnp.maximum(sizes, 1).astype(dtype)
    weights = jnp.where(index < num_groups, shares.at[index].get(mode="clip"), 0)
    number = (sizes > 0).sum().astype(dtype)
    allowed = float(_checks.static_error(error)) * (number + 1) - 1
    quantile = _weighted_quantiles(calibration.scores, weights, allowed, number + 1)
    return jnp.where(calibration.valid, quantile, jnp.nan)


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

    It is infinity if there is no such q. A label that is drawn from the plausibilities of a new
    example is in its set with a probability of at least :math:`1 - \varepsilon`. Stutz et al. prove
    it for m = 1, and :math:`1 - 2 \varepsilon` for other m. With equal plausibilities of several
    labels, the expected part of them that a set misses is at most :math:`\varepsilon`.

    Args:
        error: see `topk_jax.sets`.
        scores: the scores of all classes, `[..., L]`; at least one example.
        plausibilities: the part of the votes that each class has, `[..., L]`: at least 0, with sum
            1 over the classes, up to 1e-4, or twice the eps of their type if that is more.
        num_samples: the static number m of labels of each example, at least 1; None without draws.
        key: one key of `jax.random.key`, with `num_samples`.

    Returns:
        A scalar for `score_set` or `conformal_set`; NaN if a score is NaN, or if the traced
        plausibilities of an example are not a distribution.

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

    Source: Stutz et al. (2023), "Conformal prediction under ambiguous ground truth", algorithm 1;
    Angelopoulos et al. (2024), "Conformal risk control".
    """
    values = _checks.floating_array(scores, "scores")
    _checks.some_examples(values, "scores")
    votes = _checks.distributions(plausibilities, "plausibilities", values.shape, values.dtype)
    rate, number = _checks.static_error(error), math.prod(values.shape[:-1])
    if (num_samples is None) != (key is None):
        raise ValueError(
            f"num_samples and key must be given together, got {num_samples} and {key}."
        )
    valid = ~jnp.isnan(values).any() & ~jnp.isnan(votes).any()
    if num_samples is None or key is None:
        allowed = float(rate * (number + 1) - 1)
        every, weights = (_sharding.gather(each).reshape(-1) for each in (values, votes))
        # Votes that are all in one class make integers, which half a vote does not change.
        scale = min(max(allowed, 1.0), 0.5 / _numerics.rounding_to_spare(values.dtype))
        quantile = _weighted_quantiles(every, weights, allowed, scale)
        return _numerics.nan_unless(valid, jnp.where(allowed < 0, jnp.inf, quantile))
    num_samples = _checks.static_integer(num_samples, "num_samples", minimum=1)
    key = _checks.random_keys(key, "key", ())
    uniform = jax.random.uniform(key, (num_samples, *values.shape[:-1]), values.dtype)
    labels = jax.vmap(partial(_drawn, votes))(uniform)
    drawn = jax.vmap(partial(_numerics.score_of_label, values))(labels)
    rank = math.ceil(num_samples * (number + 1) * (1 - rate))
    of_labels = _sharding.gather(drawn).reshape(-1)
    return quantile_of(Calibration(of_labels, jnp.zeros_like(of_labels, int), valid), rank)


@jax.jit
def _weighted_quantiles(
    scores: jax.Array, weights: jax.Array, allowed: jax.Array | float, scale: jax.Array | float
) -> jax.Array:
    """The smallest score [n] above which weights sum to at most `allowed` [...], or infinity.

    Sums are from the largest score on, which stay small, and have 16 roundings of `scale` to spare:
    five fifths are one.
    """
    ascending, weights = jax.lax.sort((scores, weights), num_keys=1)
    above = jax.lax.cumsum(weights, reverse=True) - weights
    allowed, scale = jnp.asarray(allowed, above.dtype), jnp.asarray(scale, above.dtype)
    spare = _numerics.rounding_to_spare(above.dtype) * scale

    def find(most: jax.Array, above: jax.Array, ascending: jax.Array) -> jax.Array:
        first = jnp.searchsorted(-above, -most)
        return ascending[jnp.minimum(first, ascending.size - 1)]

    found = _sharding.map_examples(find, allowed.ndim, allowed + spare, shared=(above, ascending))
    return jnp.where(allowed + spare < 0, jnp.inf, found)


@jax.jit
def _shifted_quantiles(
    new: jax.Array, scores: jax.Array, weights: jax.Array, error: float
) -> jax.Array:
    """The quantiles for new examples of these weights, [...]; NaN if a sum overflows."""
    total = weights.sum() + new
    allowed = error * total - new
    quantiles = _weighted_quantiles(scores, weights, allowed, total)
    return _numerics.nan_unless(jnp.isfinite(total), quantiles)


def _drawn(votes: jax.Array, uniform: jax.Array) -> jax.Array:
    """A class of each example [...], drawn by numbers in [0, 1)."""
    sums = jnp.cumsum(votes, axis=-1)
    total = sums[..., -1:]
    by_number = (sums <= uniform[..., None] * total).sum(axis=-1)
    # Rounding may put the last number above all sums.
    return jnp.minimum(by_number, (sums < total).sum(axis=-1))
