"""The temperature that calibrates the probabilities of a classifier."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _class_axis, _numerics, _selection

__all__ = ["temperature"]

# Temperatures are searched from 2^-20 to 2^20, in at most `_MOST_PASSES` passes over the logits.
_LARGEST = 2.0**20
_MOST_PASSES = 80


class _Search(NamedTuple):
    """A search for the inverse temperature between two bounds."""

    inverse: jax.Array
    lower: jax.Array
    upper: jax.Array
    step: jax.Array
    passes: jax.Array


@_class_axis.refuse_split
def temperature(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    r"""The temperature with the smallest mean cross-entropy of the scaled logits.

    .. math:: T = \arg\min_T \frac1n \sum_i -\log \mathrm{softmax}_{y_i}(s_i / T)

    Compute the probabilities as `softmax(logits / T)` before you calibrate a threshold or quantile
    that all examples share. Use examples that the classifier was not trained on.

    If the examples are split over devices, each device gets two numbers per example of the other
    devices in each step, so that the means are rounded as on one device.

    In float32, the temperature is right to a relative 2e-5.

    Args:
        logits: floating-point scores, `[..., L]`, with at least one example.
        labels: integer classes, `[...]`.

    Returns:
        A scalar from 2^-20 to 2^20, in the logits' dtype (float32 or float64); NaN if a logit is
        NaN or a label is outside [0, L). If every label has the largest logit of its example, there
        is no minimum. The result is then a temperature below which the cross-entropy does not
        improve by more than rounding.

    Raises:
        TypeError: `logits` is not floating-point or `labels` is not integer.
        ValueError: the shapes do not match, or there is no example.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from topk_jax import sets
        >>> logits = jnp.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
        >>> found = sets.temperature(logits, jnp.array([0, 0, 0, 1]))
        >>> print((100 * jax.nn.softmax(logits / found)[0]).round())
        [75. 25.]

    See Also:
        `adjust_logits`.

    Source: Guo et al. (2017), "On calibration of modern neural networks", section 4.2.
    """
    scores, labels = _checks.logits_and_labels(logits, labels)
    _checks.some_examples(scores, "logits")
    return _temperature(scores.reshape(-1, scores.shape[-1]), labels.reshape(-1))


@jax.jit
def _temperature(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The inverse of the root of the slope of the mean cross-entropy in the inverse temperature.

    Identity: the cross-entropy is convex in the inverse temperature, its slope is the mean of E[s]
    - s_y, and its curvature the mean variance of s. Hazard: Newton's steps hardly shrink if the
    slope decays exponentially. Choice: a bisection of the bounds' logarithms instead of a step that
    leaves them or is more than half as long as the one before. Cost: two passes of exponentials for
    each step, about ten steps.
    """
    scores = _numerics.finite_scores(logits)
    scores = scores - scores.max(axis=-1, keepdims=True)
    of_labels = _numerics.score_of_label(scores, labels)
    tolerance = 4.0 * float(jnp.finfo(scores.dtype).eps)

    def mean(values: jax.Array) -> jax.Array:
        return _selection.sum_in_blocks(values) / values.size

    def slope_and_curvature(inverse: jax.Array) -> tuple[jax.Array, jax.Array]:
        weights = jnp.exp(inverse * scores)
        # A masked class has a weight of 0 and a score whose square overflows.
        finite = jnp.where(weights > 0.0, scores, 0.0)
        total = weights.sum(axis=-1)
        first = (weights * finite).sum(axis=-1) / total
        around = weights * (finite - first[:, None]) ** 2
        return mean(first - of_labels), mean(around.sum(axis=-1) / total)

    def unfinished(search: _Search) -> jax.Array:
        moves = jnp.abs(search.step) > tolerance * search.inverse
        return moves & (search.passes < _MOST_PASSES)

    def advance(search: _Search) -> _Search:
        slope, curvature = slope_and_curvature(search.inverse)
        lower = jnp.where(slope <= 0.0, search.inverse, search.lower)
        upper = jnp.where(slope >= 0.0, search.inverse, search.upper)
        newton = search.inverse - slope / curvature
        trusted = (newton > lower) & (newton < upper)
        trusted &= jnp.abs(newton - search.inverse) <= 0.5 * jnp.abs(search.step)
        # If the slope is 0, both bounds are at this position, and so is their mean.
        chosen = jnp.where(trusted, newton, jnp.sqrt(lower) * jnp.sqrt(upper))
        return _Search(chosen, lower, upper, chosen - search.inverse, search.passes + 1)

    # Under shard_map the initial values of the loop must vary over the devices as the scores do.
    one = jnp.ones_like(of_labels.max())
    start = _Search(one, one / _LARGEST, one * _LARGEST, one * jnp.inf, jnp.asarray(0))
    found = jax.lax.while_loop(unfinished, advance, start).inverse
    return jnp.where(_numerics.valid_examples(logits, labels).all(), 1.0 / found, jnp.nan)
