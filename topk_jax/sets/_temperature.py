"""Logits after training: their temperature, weights of groups, and the frequencies of classes."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics, _selection

__all__ = ["adjust_logits", "group_weights", "temperature"]

# Inverse temperatures are searched from 2^-20, weights from 0, up to this number.
_LARGEST = 2.0**20
_MOST_PASSES = 100


@_class_axis.refuse_split
def temperature(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    r"""The temperature with the smallest mean cross-entropy of the scaled logits.

    .. math:: T = \arg\min_T \frac1n \sum_i -\log \mathrm{softmax}_{y_i}(s_i / T)

    Compute the probabilities as `softmax(logits / T)` before you calibrate a threshold or quantile
    that all examples share. Use examples that the classifier was not trained on. In float32, the
    temperature is right to a relative 2e-5.

    Args:
        labels: see `topk_jax.sets`.
        logits: floating-point scores, `[..., L]`, with at least one example.

    Returns:
        A scalar from 2^-20 to 2^20; NaN if a logit is NaN or a label is outside [0, L). If every
        label has the largest logit of its example, there is no minimum. The result is then a
        temperature below which the cross-entropy does not improve by more than rounding.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from topk_jax import sets
        >>> logits = jnp.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
        >>> found = sets.temperature(logits, jnp.array([0, 0, 0, 1]))
        >>> print((100 * jax.nn.softmax(logits / found)[0]).round())
        [75. 25.]

    Source: Guo et al. (2017), "On calibration of modern neural networks", section 4.2.
    """
    scores, labels = _checks.logits_and_labels(logits, labels)
    _checks.some_examples(scores, "logits")
    return _temperature(scores.reshape(-1, scores.shape[-1]), labels.reshape(-1))


@_class_axis.refuse_split
def group_weights(log_probabilities: ArrayLike, sizes: ArrayLike, labels: ArrayLike) -> jax.Array:
    r"""The weights of groups by their sizes, with the smallest mean cross-entropy.

    .. math::
        \arg\min_{w_0, w_1 \ge 0} \sum_g
        -\log \mathrm{softmax}_{y_g} \big( (w_0 + w_1 \log_2 n_g) \, \ell_g \big)

    A group of one example has the inverse temperature :math:`w_0`, and each doubling of the number
    of examples adds :math:`w_1`, so that thousands of photographs of one plant do not count as
    thousands of independent ones. If all groups have one size, only the weight of this size is
    determined.

    Args:
        log_probabilities: of groups, as `combine` returns them without weights, `[..., L]`; at
            least one group.
        sizes: the integer number of examples of each group, at least 1, `[...]`.
        labels: the integer class of each group, `[...]`.

    Returns:
        The weights `[2]` for `combine`; NaN if a log-probability is NaN or a traced one is above 0,
        a label is outside [0, L) or a size is less than 1. If every label has the largest
        probability, there is no minimum, and the result is large.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> logs = jnp.log(jnp.array([[0.75, 0.25]] * 4 + [[0.6, 0.4]] * 5))
        >>> sizes, labels = jnp.array([1] * 4 + [2] * 5), jnp.array([0, 0, 0, 1] + [0, 0, 0, 0, 1])
        >>> print((100 * sets.group_weights(logs, sizes, labels)).round())
        [100. 242.]

    Source: ours. For groups of one size it is the temperature of Guo et al. (2017), "On calibration
    of modern neural networks".
    """
    values = _checks.log_probabilities(log_probabilities, "log_probabilities")
    values, labels = _checks.logits_and_labels(values, labels, name="log_probabilities")
    _checks.some_examples(values, "log_probabilities")
    counts = _checks.integer_array(
        sizes, "sizes", labels.shape, of=("log_probabilities", values.shape)
    )
    rows = values.reshape(-1, values.shape[-1])
    return _group_weights(rows, counts.reshape(-1), labels.reshape(-1))


def adjust_logits(logits: ArrayLike, *, class_counts: ArrayLike, tau: ArrayLike = 1.0) -> jax.Array:
    r"""Subtracts the logarithms of the class frequencies from the logits of a trained classifier.

    .. math:: s_l - \tau \log \pi_l, \qquad \pi_l = \frac{n_l}{\sum_j n_j}

    If the softmax of the logits is p(y | x), the adjusted ones with tau = 1 rank the classes by
    :math:`p(y \mid x) / \pi_y`. This order has the highest top-k accuracy on average over the
    classes.

    Args:
        logits: floating-point scores, `[..., L]`. Probabilities must be given as logarithms.
        class_counts: the number of training examples of each class, positive, `[L]`.
        tau: scalar strength of the adjustment, at least 0; 0 returns the logits.

    Returns:
        Adjusted logits, `[..., L]`. A logit of -inf stays -inf, and NaN stays NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> logits = jnp.log(jnp.array([0.6, 0.3, 0.1]))
        >>> adjusted = sets.adjust_logits(logits, class_counts=[80, 15, 5])
        >>> print(jnp.exp(adjusted).round(2))
        [0.75 2.   2.  ]
        >>> print(sets.top_k_set(adjusted, k=2))
        [False  True  True]

    Source: Menon et al. (2021), "Long-tail learning via logit adjustment", equation 9.
    """
    scores = _checks.floating_array(logits, "logits")
    shapes = (scores.shape[-1:],)
    counts = _checks.numbers(class_counts, "class_counts", scores.dtype, shapes, above=0)
    tau = _checks.scalar(tau, "tau", scores.dtype, at_least=0)
    return scores - jnp.broadcast_to(tau * jnp.log(counts / counts.sum()), scores.shape)


class _Terms(NamedTuple):
    """The cross-entropy of each example, [n], and its two derivatives in the inverse temperature.

    It is convex: its slope is E[s] - s_y, and its curvature the variance of s.
    """

    losses: jax.Array
    slopes: jax.Array
    curvatures: jax.Array


def _terms(inverses: jax.Array, scores: jax.Array, labels: jax.Array) -> _Terms:
    """The terms of scores [n, L], of which the largest of each example is 0."""
    of_labels = _numerics.score_of_label(scores, labels)
    weights = jnp.exp(inverses[:, None] * scores)
    # A masked class has a weight of 0 and a score whose square overflows.
    finite = jnp.where(weights > 0.0, scores, 0.0)
    total = weights.sum(axis=-1)
    first = (weights * finite).sum(axis=-1) / total
    second = (weights * (finite - first[:, None]) ** 2).sum(axis=-1) / total
    return _Terms(jnp.log(total) - inverses * of_labels, first - of_labels, second)


def _below_0(logits: jax.Array) -> jax.Array:
    scores = _numerics.finite_scores(logits)
    return scores - scores.max(axis=-1, keepdims=True)


def _mean(values: jax.Array) -> jax.Array:
    return _selection.sum_in_blocks(values) / values.size


class _Search(NamedTuple):
    """A search for the inverse temperature between two bounds."""

    inverse: jax.Array
    lower: jax.Array
    upper: jax.Array
    step: jax.Array
    passes: jax.Array


@jax.jit
def _temperature(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The inverse of the root of the slope of the mean cross-entropy in the inverse temperature.

    Newton's steps hardly shrink where the slope decays exponentially: a bisection of the bounds'
    logarithms takes the place of a step that leaves them or is not half as long as the last one.
    """
    scores = _below_0(logits)
    tolerance = 4.0 * float(jnp.finfo(scores.dtype).eps)

    def unfinished(search: _Search) -> jax.Array:
        moves = jnp.abs(search.step) > tolerance * search.inverse
        return moves & (search.passes < _MOST_PASSES)

    def advance(search: _Search) -> _Search:
        inverses = jnp.broadcast_to(search.inverse, labels.shape)
        terms = _terms(inverses, scores, labels)
        slope, curvature = _mean(terms.slopes), _mean(terms.curvatures)
        lower = jnp.where(slope <= 0.0, search.inverse, search.lower)
        upper = jnp.where(slope >= 0.0, search.inverse, search.upper)
        newton = search.inverse - slope / curvature
        trusted = (newton > lower) & (newton < upper)
        trusted &= jnp.abs(newton - search.inverse) <= 0.5 * jnp.abs(search.step)
        # If the slope is 0, both bounds are at this position, and so is their mean.
        chosen = jnp.where(trusted, newton, jnp.sqrt(lower) * jnp.sqrt(upper))
        return _Search(chosen, lower, upper, chosen - search.inverse, search.passes + 1)

    # Under shard_map the initial values of the loop must vary over the devices as the scores do.
    one = jnp.ones_like(_numerics.score_of_label(scores, labels).max())
    start = _Search(one, one / _LARGEST, one * _LARGEST, one * jnp.inf, jnp.asarray(0))
    found = jax.lax.while_loop(unfinished, advance, start).inverse
    return jnp.where(_numerics.valid_examples(logits, labels).all(), 1.0 / found, jnp.nan)


class _Descent(NamedTuple):
    """Two weights `[2]`, the loss there, the damping of the next step, and the last step."""

    weights: jax.Array
    loss: jax.Array
    damping: jax.Array
    step: jax.Array
    passes: jax.Array


@jax.jit
def _group_weights(logs: jax.Array, sizes: jax.Array, labels: jax.Array) -> jax.Array:
    """The minimum by Newton's steps within the bounds, damped as by Levenberg and Marquardt.

    Undamped ones overshoot, and with groups of one size the curvature is singular.
    """
    scores = _below_0(logs)
    doublings = jnp.log2(jnp.maximum(sizes, 1).astype(scores.dtype))
    epsilon = float(jnp.finfo(scores.dtype).eps)

    def terms_at(weights: jax.Array) -> _Terms:
        return _terms(weights[0] + weights[1] * doublings, scores, labels)

    def unfinished(descent: _Descent) -> jax.Array:
        moves = (jnp.abs(descent.step) > 4.0 * epsilon * (1.0 + descent.weights)).any()
        return moves & (descent.passes < _MOST_PASSES)

    def advance(descent: _Descent) -> _Descent:
        weights, loss, damping, step, passes = descent
        _, slopes, curvatures = terms_at(weights)
        slope = jnp.stack([_mean(slopes), _mean(slopes * doublings)])
        one, crossed, other = (_mean(curvatures * doublings**power) for power in range(3))
        # A weight at 0 that would fall further stays there.
        free = (weights > 0.0) | (slope < 0.0)
        crossed = jnp.where(free.all(), crossed, 0.0)
        diagonal = jnp.where(free, jnp.stack([one, other]), 0.0)
        ridge = damping * diagonal.sum() + float(jnp.finfo(scores.dtype).tiny)
        diagonal = jnp.where(free, diagonal + ridge, 1.0)
        slope = jnp.where(free, slope, 0.0)
        determinant = diagonal.prod() - crossed**2
        newton = crossed * slope[::-1] - diagonal[::-1] * slope
        newton = newton / jnp.where(determinant > 0.0, determinant, jnp.inf)
        tried = jnp.clip(weights + newton, 0.0, _LARGEST)
        found = _mean(terms_at(tried).losses)
        # Near the minimum, losses differ by their rounding only.
        better = found <= loss + epsilon * jnp.abs(loss)
        return _Descent(
            jnp.where(better, tried, weights),
            jnp.where(better, found, loss),
            jnp.where(better, 0.125 * damping, jnp.maximum(8.0 * damping, epsilon)),
            jnp.where(better, tried - weights, step),
            passes + 1,
        )

    one = jnp.ones_like(_numerics.score_of_label(scores, labels).max())
    weights = jnp.stack([one, jnp.zeros_like(one)])
    loss = _mean(terms_at(weights).losses)
    start = _Descent(weights, loss, 0.001 * one, weights * jnp.inf, jnp.asarray(0))
    found = jax.lax.while_loop(unfinished, advance, start).weights
    valid = _numerics.valid_examples(logs, labels).all() & (sizes > 0).all()
    return jnp.where(valid, found, jnp.nan)
