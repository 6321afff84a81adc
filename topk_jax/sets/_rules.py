"""Rules that choose the classes of a set from scores or probabilities."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import (
    _checks,
    _class_axis,
    _classes,
    _numerics,
    _ordinals,
    _selection,
    _sharding,
)
from topk_jax.operators import _top_k
from topk_jax.sets import _rows

__all__ = ["adaptive_set", "threshold_set", "top_k_set"]


@_class_axis.allow_split(of="entries")
def top_k_set(scores: ArrayLike, *, k: int, class_axis_name: Hashable | None = None) -> jax.Array:
    r"""The k classes with the largest scores.

    .. math:: \Gamma(x) = \{ l : s_l \text{ is among } s_{[1]}, \dots, s_{[k]} \}

    Args:
        scores: floating-point scores or probabilities, `[..., L]`.
        k: static set size, from 1 to L.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        Booleans, `[..., L]`, exactly k of them true. Among equal scores, lower indices come first.
        None is true where a score is NaN.

    Raises:
        TypeError: `scores` is not floating-point or `k` is not a static integer.
        ValueError: `k` is outside [1, L].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> print(sets.top_k_set(jnp.array([0.2, 0.4, 0.2, 0.2]), k=2))
        [ True  True False False]

    See Also:
        `threshold_set`, `average_k_threshold`.

    Source: Garcin (2023), thesis, equation 2.13.
    """
    scores = _checks.floating_array(scores, "scores")
    k = _checks.rank(k, _classes.count(scores, class_axis_name))
    if class_axis_name is not None:
        return _top_k_set_of_split(scores, k, class_axis_name)
    return _top_k_set(scores, k)


@_class_axis.allow_split(of="entries")
def threshold_set(
    probabilities: ArrayLike,
    threshold: ArrayLike,
    *,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    r"""The classes whose probability reaches a threshold.

    .. math:: \Gamma(x) = \{ l : p_l \ge \lambda_l \}

    Args:
        probabilities: floating-point, `[..., L]`.
        threshold: one real number for all classes, or one for each, `[L]`, converted to the
            probabilities' dtype (float32 or float64). All classes reach minus infinity; no class
            reaches infinity or NaN.
        class_axis_name: the mapped axis of `shard_map` that the classes are split along into equal
            parts, or `None`; see `docs/scaling.md`.

    Returns:
        Booleans, `[..., L]`; none is true where a probability is NaN.

    Raises:
        TypeError: `probabilities` is not floating-point or `threshold` is not real.
        ValueError: `threshold` has a wrong shape.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> print(sets.threshold_set(jnp.array([0.5, 0.25, 0.25]), 0.25))
        [ True  True  True]

    See Also:
        `average_k_threshold`, `conformal_threshold`, `top_k_set`.

    Source: Garcin (2023), thesis, equation 2.31.
    """
    probabilities = _checks.floating_array(probabilities, "probabilities")
    thresholds = _checks.limits(
        threshold, "threshold", probabilities.shape[-1], probabilities.dtype
    )
    reached = probabilities >= jnp.broadcast_to(thresholds, probabilities.shape)
    return reached & _without_nan(probabilities, class_axis_name)


def adaptive_set(probabilities: ArrayLike, *, error: ArrayLike) -> jax.Array:
    r"""The smallest set whose probabilities add up to at least `1 - error`, for each example.

    .. math::
        \Gamma(x) = \{ l : p_l \text{ is among } p_{[1]}, \dots, p_{[m]} \}, \qquad
        m = \min \Big\{ m : \sum_{j \le m} p_{[j]} \ge 1 - \varepsilon \Big\}

    In float32, a total within 2e-6 of 1 counts as 1, and a missed probability within a relative
    2e-6 of the error is allowed. Up to 100,000 classes, it is added up to a relative 1e-6.

    Args:
        probabilities: floating-point, from 0 to 1, `[..., L]`, with sum 1 over the classes.
        error: a real scalar in [0, 1), the probability that a set may miss. May be traced.

    Returns:
        Booleans, `[..., L]`. Among equal probabilities, lower indices come first. All are true
        where the sum is less than `1 - error`; none is true where a probability is NaN.

    Raises:
        TypeError: `probabilities` is not floating-point or `error` is not real.
        ValueError: `error` is not a scalar, or it is concrete and outside [0, 1), or a concrete
            probability is not from 0 to 1; a traced one empties its set.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> print(sets.adaptive_set(jnp.array([0.125, 0.5, 0.25, 0.125]), error=0.25))
        [False  True  True False]

    See Also:
        `average_error_threshold`, `conformal_set`.

    Source: Garcin (2023), thesis, table 2.1, point-wise error.
    """
    probabilities = _checks.probabilities(probabilities, "probabilities")
    error = _checks.scalar(error, "error", probabilities.dtype, at_least=0.0, below=1.0)
    return _adaptive_set(probabilities, error)


@partial(jax.jit, static_argnames="k")
def _top_k_set(scores: jax.Array, k: int) -> jax.Array:
    scores = _selection.compute_once(scores)
    return largest_set(scores, _top_k.select_largest(scores, k)[0][..., -1], k)


def _top_k_set_of_split(scores: jax.Array, k: int, class_axis_name: Hashable) -> jax.Array:
    """Like `_top_k_set`, but the classes are split. -0 and 0 are equal there, too."""
    size = scores.shape[-1]
    equal = jnp.where(scores == 0, 0, scores).reshape(-1, size)
    _, classes = _top_k.select_largest_of_split(equal, k, class_axis_name)
    nothing = jnp.zeros_like(equal, jnp.bool_)
    chosen = _classes.put(nothing, classes, True, class_axis_name)
    return chosen.reshape(scores.shape) & _without_nan(scores, class_axis_name)


@jax.jit
def _adaptive_set(probabilities: jax.Array, error: jax.Array) -> jax.Array:
    """The adaptive set, computed from the probability that it misses.

    Identity: the kept probability is the total minus the missed one. Hazard: near 1 float32 has
    steps of 6e-8, which is too coarse for many classes or a small error, and a softmax adds up to 1
    only up to rounding. A sort costs more than all else. Choice: add up the missed ones, which is
    precise at the cut, treat a total within rounding of 1 as 1 and a sum within rounding of the
    error as the error, and find the cut by bisection.
    Cost: at most one pass over the probabilities for each bit, in the cache of a core.
    """
    probabilities = _selection.compute_once(probabilities)

    def of_batch(probabilities: jax.Array, error: jax.Array) -> tuple[jax.Array, jax.Array]:
        rows = probabilities.reshape(-1, probabilities.shape[-1])
        cuts = _rows.in_blocks(partial(_adaptive_cut, error), rows)
        smallest, size = (cut.reshape(probabilities.shape[:-1]) for cut in cuts)
        return smallest, size

    smallest, size = _sharding.map_examples(
        of_batch, probabilities.ndim - 1, probabilities, shared=(error,)
    )
    return largest_set(probabilities, smallest, size) & ~jnp.isnan(error)


def _adaptive_cut(error: jax.Array, probabilities: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The smallest probability of the adaptive set of one example [L], and the size of the set."""
    values = _numerics.flush(probabilities)
    padded = _rows.pad(values, jnp.inf)
    ordinals = _ordinals.to_ordinals(padded)

    def below(ordinal: jax.Array) -> tuple[jax.Array, jax.Array]:
        mask = ordinals < ordinal
        missed = _rows.sum_of(jnp.where(mask, padded, 0.0))
        return _selection.compute_once(missed), _rows.sum_of(mask.astype(jnp.result_type(int)))

    excess = _rows.sum_of(_rows.pad(values, 0.0)) - 1.0
    rounding = _numerics.rounding_to_spare(values.dtype)
    allowed = (error + jnp.where(jnp.abs(excess) <= rounding, 0.0, excess)) * (1.0 + rounding)

    def several(bracket: tuple[jax.Array, ...]) -> jax.Array:
        lower, upper, num_lower, num_upper = bracket
        return (upper - lower > 1) & (num_upper - num_lower > 1)

    def halve(bracket: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        # All below the lower end may be missed, but not all below the upper one.
        lower, upper, num_lower, num_upper = bracket
        middle = lower + (upper - lower) // 2
        missed, num = below(middle)
        fits = missed <= allowed
        return (
            jnp.where(fits, middle, lower),
            jnp.where(fits, upper, middle),
            jnp.where(fits, num, num_lower),
            jnp.where(fits, num_upper, num),
        )

    lower = _ordinals.to_ordinals(values.min())
    # The most likely class is always kept, even if rounding changes the total.
    upper = _ordinals.to_ordinals(values.max()) + 1
    start: tuple[jax.Array, ...] = (lower, upper, below(lower)[1], below(upper)[1])
    lower, *_ = jax.lax.while_loop(several, halve, start)
    smallest = jnp.where(ordinals >= lower, padded, jnp.inf).min()
    missed, num_missed = below(_ordinals.to_ordinals(smallest))
    num_tied = (values == smallest).sum()
    # Among equal probabilities, as many as possible are missed.
    ranks = jnp.arange(1, values.size + 1)
    fits = missed + ranks.astype(values.dtype) * smallest <= allowed
    num_missed += (fits & (ranks <= num_tied)).sum()
    return smallest, jnp.maximum(values.size - num_missed, 1)


def largest_set(scores: jax.Array, smallest: jax.Array, size: jax.Array | int) -> jax.Array:
    """A mask of the `size` largest scores, given the smallest of them; empty with a NaN score."""
    above = scores > smallest[..., None]
    tied = scores == smallest[..., None]
    room = size - above.sum(axis=-1)
    chosen = above | (tied & (jnp.cumsum(tied, axis=-1) <= room[..., None]))
    return chosen & _without_nan(scores)


def _without_nan(scores: jax.Array, class_axis_name: Hashable | None = None) -> jax.Array:
    return ~_classes.any_class(jnp.isnan(scores), class_axis_name, keepdims=True)
