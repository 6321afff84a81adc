"""Conformal quantiles of all examples: of scores that count alike, and of weighted ones.

A weighted quantile is the smallest score above which the weights sum to at most what the error
allows. Shifts, votes and groups differ in their weights.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _example, _sharding
from topk_jax._classes import add_by_group
from topk_jax.sets._logits import group_indices

__all__ = [
    "conformal_quantile",
    "conformal_threshold",
    "covariate_shift_quantiles",
    "hierarchical_quantile",
    "label_shift_quantiles",
    "vote_quantile",
]


@_sharding.allow_split(of="batch")
def conformal_threshold(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    error: float,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The threshold of split conformal prediction: its sets miss the label at a given rate.

    .. math::
        \lambda = \text{the } \lceil (n + 1)(1 - \varepsilon) \rceil
        \text{-th largest } p_{y_i}(x_i)

    It is minus infinity, which keeps every class, if there are fewer.

    Args:
        probabilities, labels, error, class_axis_name: see `topk_jax.sets`.

    Returns:
        A scalar for `threshold_set`.

    Example:
        >>> probabilities = jnp.array([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]])
        >>> print(conformal_threshold(probabilities, jnp.array([0, 1, 1]), error=0.5))
        0.5

    Source: Garcin (2023), thesis, section 2.2.2, equation 2.5.
    """
    _, labels = _example.logits_and_labels(
        probabilities, labels, name="probabilities", class_axis_name=class_axis_name
    )
    values = _checks.probabilities(probabilities, "probabilities")
    _checks.some_examples(values, "probabilities")
    rank = num_covered(labels.size, _checks.static_error(error))
    return _conformal_threshold(values, labels, rank, class_axis_name)


def conformal_quantile(scores: ArrayLike, labels: ArrayLike, *, error: float) -> jax.Array:
    r"""The quantile of split conformal prediction: its sets miss the label at a given rate.

    .. math::
        \hat q = \text{the } \lceil (n + 1)(1 - \varepsilon) \rceil
        \text{-th smallest score of a label}

    It is infinity, which keeps every class, if there are fewer. For an example exchangeable with
    these, :math:`1 - \varepsilon \le P(s_y \le \hat q)`.

    Args:
        scores, labels, error: see `topk_jax.sets`.

    Returns:
        A scalar.

    Example:
        >>> scores, labels = jnp.array([0.25, 0.5, 0.625]), jnp.array([0, 1, 1])
        >>> print(conformal_quantile(scores, labels, error=0.5))
        0.5

    Source: Vovk et al. (2005), "Algorithmic learning in a random world".
    """
    calibration = calibration_of(scores, labels)
    rank = num_covered(calibration.labels.size, _checks.static_error(error))
    return calibration.mark(value_of_rank(calibration.scores, rank))


def label_shift_quantiles(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    error: float,
    weights: ArrayLike,
    num_classes: int | None = None,
) -> jax.Array:
    r"""Conformal quantiles for new examples whose classes have other frequencies.

    With :math:`w_c` the frequency of class c among new examples divided by the one among these:

    .. math::
        \hat q_c = \min \Big\{ s : \sum_{i : s_i \le s} w_{y_i}
        \ge (1 - \varepsilon) \Big( \sum_i w_{y_i} + w_c \Big) \Big\},

    or infinity if there is none. The examples of each class have to be distributed as here.

    Args:
        scores, labels, error, num_classes: see `topk_jax.sets`.
        weights: w up to a factor, finite, at least 0 and not all 0: `[L]`, or a scalar.

    Returns:
        One quantile per class, `[L]`; NaN also if the sum of the weights overflows.

    Example:
        >>> scores, labels = jnp.array([0.25, 0.5, 0.75, 0.5]), jnp.array([0, 0, 0, 1])
        >>> print(label_shift_quantiles(
        ...     scores, labels, error=0.25, weights=jnp.array([1.0, 3.0]), num_classes=2))
        [0.75  inf]

    Source: Podkopaev and Ramdas (2021), on classification under label shift.
    """
    calibration = calibration_by_class(scores, labels, num_classes)
    dtype = calibration.scores.dtype
    of_classes = _checks.relative_weights(weights, "weights", calibration.num_classes, dtype)
    of_examples = _classes.value_of_class(of_classes, calibration.labels)
    rate = float(_checks.static_error(error))
    return calibration.mark(_weighted_quantiles(calibration.scores, of_examples, of_classes, rate))


def covariate_shift_quantiles(
    log_weights: ArrayLike,
    calibration_scores: ArrayLike,
    calibration_log_weights: ArrayLike,
    *,
    error: float,
) -> jax.Array:
    r"""A conformal quantile for each new example, if new examples have another distribution.

    With :math:`w(x)` the density of new examples divided by the one of the calibration examples:

    .. math::
        \hat q(x) = \min \Big\{ s : \sum_{i : s_i \le s} w(x_i)
        \ge (1 - \varepsilon) \Big( \sum_i w(x_i) + w(x) \Big) \Big\},

    or infinity if there is none. Equal examples must have labels distributed as before. The logit
    of a classifier that distinguishes new examples from these is log w(x), up to a constant, which
    does not change the result.

    Args:
        error: see `topk_jax.sets`.
        log_weights: log w(x) of the new examples, floating-point, `[...]`.
        calibration_scores: the scores of the labels of the calibration examples, `[n]`.
        calibration_log_weights: log w(x) of the calibration examples, `[n]`; minus infinity for 0.

    Returns:
        One quantile per new example, `[...]`; vmap `score_set` over the examples and these. NaN
        where a weight is NaN or infinity; all are NaN if one of the calibration is, or all are 0.

    Example:
        >>> scores, weights = jnp.array([0.25, 0.5, 0.75]), jnp.array([1.0, 1.0, 4.0])
        >>> print(covariate_shift_quantiles(
        ...     jnp.log(jnp.array([1.0, 2.0, 8.0])), scores, jnp.log(weights), error=0.25))
        [0.75 0.75  inf]

    Source: Tibshirani et al. (2019), "Conformal prediction under covariate shift", section 2.
    """
    scores = vector_of_scores(calibration_scores, "calibration_scores")
    known = _checks.real_array(
        calibration_log_weights, "calibration_log_weights", scores.dtype, scores.shape
    )
    known = _sharding.gather(known)
    given = _checks.floating_numbers(log_weights, "log_weights").astype(scores.dtype)
    # Weights may overflow: the largest calibration weight is 1.
    largest = known.max()
    new, old = jnp.exp(given - largest), jnp.exp(known - largest)
    quantiles = _weighted_quantiles(scores, old, new, float(_checks.static_error(error)))
    # On the CPU a maximum of thousands of numbers can lose a NaN.
    valid = ~jnp.isnan(scores).any() & ~jnp.isnan(known).any() & jnp.isfinite(largest)
    # A sum that a new weight makes infinite is not reached.
    quantiles = jnp.where(new == jnp.inf, jnp.inf, quantiles)
    return _classes.nan_unless(valid & (given < jnp.inf), quantiles)


def hierarchical_quantile(
    scores: ArrayLike, labels: ArrayLike, groups: ArrayLike, *, error: float, num_groups: int
) -> jax.Array:
    r"""The conformal quantile for one example of a new group, from groups of several examples.

    .. math::
        \hat q = \min \Big\{ s : \sum_g \frac{1}{n_g} \#\{ i \in g : s_i \le s \}
        \ge (G + 1)(1 - \varepsilon) \Big\},

    or infinity if there is none; G is the number of groups with examples. For groups that are
    exchangeable, the `conformal_quantile` of all examples alike would promise nothing.

    Args:
        scores, labels, error, groups, num_groups: see `topk_jax.sets`.

    Returns:
        A scalar.

    Example:
        >>> scores, labels = jnp.array([0.5, 0.25, 0.25, 0.25, 0.75]), jnp.zeros(5, int)
        >>> groups = jnp.array([0, 1, 1, 1, 2])
        >>> print(hierarchical_quantile(scores, labels, groups, error=0.5, num_groups=3))
        0.5

    Source: Lee, Barber and Willett (2023), "Distribution-free inference with hierarchical data".
    """
    calibration = calibration_of(scores, labels)
    index, num_groups = group_indices(groups, np.shape(labels), num_groups)
    index = _sharding.gather(index).reshape(-1)
    sizes = add_by_group(num_groups, index, 1)
    shares = 1.0 / jnp.maximum(sizes, 1).astype(calibration.scores.dtype)
    weights = jnp.where(index < num_groups, shares.at[index].get(mode="clip"), 0)
    rate = float(_checks.static_error(error))
    return calibration.mark(_weighted_quantiles(calibration.scores, weights, 1.0, rate))


def vote_quantile(
    scores: ArrayLike,
    plausibilities: ArrayLike,
    *,
    error: float,
    num_samples: int | None = None,
    key: jax.Array | None = None,
) -> jax.Array:
    r"""The conformal quantile of labels that are votes.

    Every class of an example counts with its plausibility :math:`\lambda_i`, or each example gets m
    labels (`num_samples`), which are drawn from its plausibilities:

    .. math::
        \hat q &= \min \Big\{ q : \frac{1 + \sum_i \sum_{y : s_{iy} > q} \lambda_{iy}}{n + 1}
        \le \varepsilon \Big\} \\
        \hat q &= \text{the } \lceil (1 - \varepsilon) \, m \, (n + 1) \rceil
        \text{-th smallest of the } m n \text{ scores of the labels}

    It is infinity if there is no such q. A label that is drawn from the plausibilities of a new
    example is missed at most at the rate; with m > 1, twice the rate is proved.

    Args:
        error, key: see `topk_jax.sets`; a key with `num_samples`.
        scores: the scores of all classes, `[..., L]`.
        plausibilities: the part of the votes that each class has, `[..., L]`: at least 0, with sum
            1 over the classes, up to 1e-4, or twice the eps of their type if that is more.
        num_samples: the static number m of labels of each example, at least 1; None without draws.

    Returns:
        A scalar; NaN also if traced plausibilities of an example are not a distribution.

    Example:
        >>> scores = jnp.array([[0.25, 0.75], [0.5, 0.5], [0.375, 0.625]])
        >>> votes = jnp.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
        >>> print(vote_quantile(scores, votes, error=0.5))
        0.5

    Source: Stutz et al. (2023), "Conformal prediction under ambiguous ground truth", algorithm 1.
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
        every, weights = (_sharding.gather(each).reshape(-1) for each in (values, votes))
        return _classes.nan_unless(valid, _weighted_quantiles(every, weights, 1.0, float(rate)))
    num_samples = _checks.static_integer(num_samples, "num_samples", minimum=1)
    key = _checks.random_keys(key, "key", ())
    uniform = jax.random.uniform(key, (num_samples, *values.shape[:-1]), values.dtype)
    labels = jax.vmap(partial(_drawn, votes))(uniform)
    drawn = jax.vmap(partial(_classes.score_of_label, values))(labels)
    rank = math.ceil(num_samples * (math.prod(values.shape[:-1]) + 1) * (1 - rate))
    return _classes.nan_unless(valid, value_of_rank(_sharding.gather(drawn).reshape(-1), rank))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Calibration:
    """The scores of the labels, and the labels, both [n], on each device.

    Attributes:
        no_nan: whether no score is NaN, also of other classes.
        num_classes: L, or 0 if it is not known, because only the labels have scores.
    """

    scores: jax.Array
    labels: jax.Array
    no_nan: jax.Array
    num_classes: int = field(metadata={"static": True})

    @jax.jit
    def mark(self, quantiles: jax.Array) -> jax.Array:
        """The quantiles; NaN if a score is NaN or a label is no class."""
        in_range = self.labels >= 0
        if self.num_classes:
            in_range &= self.labels < self.num_classes
        return jnp.where(self.no_nan & in_range.all(), quantiles, jnp.nan)


def vector_of_scores(scores: ArrayLike, name: str) -> jax.Array:
    """Scores [n], on each device, or raises."""
    values = _checks.floating_array(scores, name)
    if values.ndim != 1:
        raise ValueError(f"{name} must be a vector of scores, got shape {values.shape}.")
    return _sharding.gather(values)


def calibration_of(scores: ArrayLike, labels: ArrayLike, *, name: str = "scores") -> Calibration:
    """The scores of the labels, from the scores of all classes or of the labels, or raises."""
    # One-hot labels have the shape of the scores of all classes: scores of labels must be a vector.
    values = _checks.floating_array(scores, name)
    if values.ndim == 1 and np.shape(labels) != ():
        labels = _checks.integer_array(labels, "labels", values.shape, of=(name, values.shape))
        of_labels, num_classes = values, 0
    else:
        hint = (
            "sets.vote_quantile takes one-hot and soft labels; scores of the labels alone, and "
            "their labels, have to be vectors"
        )
        values, labels = _example.logits_and_labels(scores, labels, name=name, hint=hint)
        of_labels, num_classes = _classes.score_of_label(values, labels), values.shape[-1]
    _checks.some_examples(values, name)
    # A score and a label of each example are sent to all devices, not the scores of all classes.
    of_labels, labels = (_sharding.gather(each).reshape(-1) for each in (of_labels, labels))
    return Calibration(of_labels, labels, ~jnp.isnan(values).any(), num_classes)


def calibration_by_class(
    scores: ArrayLike, labels: ArrayLike, num_classes: int | None
) -> Calibration:
    """The same with a number of classes, or raises."""
    found = calibration_of(scores, labels)
    if num_classes is None and found.num_classes:
        return found
    given = _checks.static_integer(num_classes, "num_classes", minimum=1)
    if found.num_classes not in (0, given):
        raise ValueError(
            f"num_classes must be {found.num_classes} for scores of shape {np.shape(scores)}, "
            f"got {given}."
        )
    return replace(found, num_classes=given)


def num_covered(num_examples: int, error: Fraction) -> int:
    """How many of n examples the quantile must cover."""
    return math.ceil((num_examples + 1) * (1 - error))


@jax.jit
def value_of_rank(scores: jax.Array, rank: jax.Array | int) -> jax.Array:
    """The `rank`-th smallest score [n], or infinity if there are fewer."""
    return jnp.append(jnp.sort(scores), jnp.inf)[rank - 1]


@partial(jax.jit, static_argnums=3)
def _conformal_threshold(
    values: jax.Array, labels: jax.Array, rank: jax.Array | int, name: Hashable | None
) -> jax.Array:
    # It is not 1 minus the quantile of 1 - p, whose rounding could exclude an example.
    of_labels = _classes.score_of_label(values, labels, name)
    valid = _classes.valid_examples(values, labels, name).all()
    smallest = value_of_rank(-_sharding.gather(of_labels).reshape(-1), rank)
    return jnp.where(valid, -smallest, jnp.nan)


@jax.jit
def _weighted_quantiles(
    scores: jax.Array, weights: jax.Array, new: jax.Array | float, error: float
) -> jax.Array:
    """The smallest score [n] above which weights sum to at most `error` of all, or infinity."""
    # Beside the error there is room for a new example of weight `new`, [...]. Sums are from the
    # largest score on, which stay small, and have 16 roundings to spare: five fifths are one. NaN
    # if a sum overflows.
    ascending, weights = jax.lax.sort((scores, weights), num_keys=1)
    from_here = jax.lax.cumsum(weights, reverse=True)
    total = from_here[0] + new
    # Sums that decide are about as large as the error, so their rounding is in proportion to it.
    allowed = error * total * (1 + _classes.rounding_to_spare(total.dtype)) - new

    def find(most: jax.Array, above: jax.Array, ascending: jax.Array) -> jax.Array:
        first = jnp.searchsorted(-above, -most)
        return ascending[jnp.minimum(first, ascending.size - 1)]

    shared = (jnp.append(from_here[1:], 0), ascending)
    found = _sharding.map_examples(find, allowed.ndim, allowed, shared=shared)
    found = jnp.where(allowed < 0, jnp.inf, found)
    return _classes.nan_unless(jnp.isfinite(total), found)


def _drawn(votes: jax.Array, uniform: jax.Array) -> jax.Array:
    """A class of each example [...], drawn by numbers in [0, 1)."""
    sums = jnp.cumsum(votes, axis=-1)
    total = sums[..., -1:]
    by_number = (sums <= uniform[..., None] * total).sum(axis=-1)
    # Rounding may put the last number above all sums.
    return jnp.minimum(by_number, (sums < total).sum(axis=-1))
