"""Sets of a limited size with an honest statement of how often they miss: backward conformal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics, _sharding
from topk_jax._entries import take_along
from topk_jax.operators import _top_k

__all__ = ["left_out_top_k_levels", "top_k_levels"]


def top_k_levels(scores: ArrayLike, calibration_scores: ArrayLike, *, k: ArrayLike) -> jax.Array:
    r"""The rate at which sets of at most k classes may miss, for each example.

    With :math:`E_l = s_l / \mathrm{mean}(s_1, \dots, s_n, s_l)`, where :math:`s_1, \dots, s_n` are
    the scores of the labels of the calibration examples:

    .. math:: a(x) = 1 / E_{(k+1)}, \qquad E_{(1)} \le E_{(2)} \le \dots

    The set :math:`\{ l : E_l < 1/a(x) \}` has at most the k classes of the smallest scores. To
    first order :math:`P(y \notin \Gamma(x)) \le \mathbb E[a(x)]`. This fails if levels differ
    much; :math:`P(y \notin \Gamma(x)) \le \sqrt{\mathbb E[a(x)]}` always holds. The bounds are
    loose: a level of 1 or more promises nothing, and the part of the calibration examples that
    top-k sets miss is a better estimate, without a guarantee for a size that depends on the
    example.

    Args:
        scores: floating-point scores of all classes, at least 0 and smaller for classes that fit
            better, `[..., L]`, such as :math:`-\log p_l`.
        calibration_scores: the scores of the labels of the calibration examples, `[n]`, at least
            one.
        k: set size, from 1 to L: a static integer, or integers `[...]`, one for each example,
            which may be traced.

    Returns:
        One level for each example, `[...]`, in float32 or float64: 0 where k is L, infinity where
        the (k+1)-th smallest score is 0, and NaN where a score is NaN, a traced one is negative,
        or a traced k is outside [1, L].

    Raises:
        TypeError: the scores are not floating-point, or `k` is neither a static integer nor an
            integer array.
        ValueError: a concrete score is negative, `calibration_scores` is not a vector of at least
            one score, `k` has a wrong shape, or a concrete k is outside [1, L].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores = jnp.array([[0.5, 1.0, 2.0], [4.0, 0.25, 1.0]])
        >>> print(sets.top_k_levels(scores, jnp.array([0.5, 1.0, 0.5]), k=2))
        [0.5   0.375]
        >>> print(sets.top_k_levels(scores, jnp.array([0.5, 1.0, 0.5]), k=jnp.array([2, 1])))
        [0.5  0.75]

    See Also:
        `left_out_top_k_levels`, `top_k_set`, `conformal_scores`.

    Source: Gauthier, Bach and Jordan (2025), "Backward conformal prediction", section 3.
    """
    values = _positive(scores, "scores")
    known = _positive(calibration_scores, "calibration_scores").astype(values.dtype)
    if known.ndim != 1:
        raise ValueError(
            f"calibration_scores must be a vector of scores of labels, got shape {known.shape}."
        )
    k = _checks.rank_or_ranks(k, values.shape[-1], values.shape[:-1])
    return _levels(values, _sharding.gather(known).sum(), known.shape[0], k)


def left_out_top_k_levels(scores: ArrayLike, labels: ArrayLike, *, k: ArrayLike) -> jax.Array:
    r"""The levels of the calibration examples, each with the others as calibration examples.

    .. math:: a_i = 1 / E_{(k+1)}(x_i), \text{ with the scores of the labels of all } j \ne i

    Their mean estimates the mean of `top_k_levels` of new examples. `top_k_levels` describes how
    that mean bounds the rate at which sets of k classes miss.

    Args:
        scores: floating-point scores of all classes, at least 0 and smaller for classes that fit
            better, `[..., L]`; at least two examples.
        labels: integer classes, `[...]`.
        k: set size, from 1 to L: a static integer, or integers `[...]`, one for each example,
            which may be traced.

    Returns:
        One level for each example, `[...]`; see `top_k_levels`. All are NaN if a label is outside
        [0, L), or if its score is NaN or, traced, negative.

    Raises:
        TypeError: `scores` is not floating-point, `labels` is not integer, or `k` is neither a
            static integer nor an integer array.
        ValueError: the shapes do not match, a concrete score is negative, there are fewer than two
            examples, or a concrete k is outside [1, L].

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import sets
        >>> scores = jnp.array([[0.5, 1.0, 2.0], [1.0, 0.5, 2.0]])
        >>> print(sets.left_out_top_k_levels(scores, jnp.array([0, 0]), k=1))
        [1.   0.75]

    See Also:
        `top_k_levels`.

    Source: Gauthier, Bach and Jordan (2025), section 4.
    """
    values, labels = _checks.logits_and_labels(scores, labels, name="scores")
    values = _checks.within(scores, values, "scores", (0.0, float("inf")))
    if labels.size < 2:
        raise ValueError(f"scores must have at least two examples, got shape {values.shape}.")
    k = _checks.rank_or_ranks(k, values.shape[-1], values.shape[:-1])
    of_labels = _numerics.nan_where_invalid_labels(
        _numerics.score_of_label(values, labels), labels, values.shape[-1]
    )
    others = _sum_of_others(of_labels, _sharding.gather(of_labels))
    return _levels(values, others, labels.size - 1, k)


def _sum_of_others(own: jax.Array, of_all: jax.Array) -> jax.Array:
    """The sum of the scores of all examples but one, [...]; infinite if one of the others is."""
    # The difference of two infinities is NaN.
    numbers, number = (jnp.where(jnp.isinf(one), 0, one) for one in (of_all.reshape(-1), own))
    # Hazard: the largest score may be all digits of the sum. Choice: a sum without it.
    largest = numbers.argmax()
    rest = jnp.where(jnp.arange(numbers.size) == largest, 0, numbers).sum()
    finite = jnp.where(number == numbers[largest], rest, numbers.sum() - number)
    num_others = jnp.isinf(of_all).sum() - jnp.isinf(own).astype(int)
    # A sum, so that the NaN of an invalid example stays.
    return finite + jnp.where(num_others > 0, jnp.inf, 0)


def _positive(scores: ArrayLike, name: str) -> jax.Array:
    values = _checks.floating_array(scores, name)
    return _checks.within(scores, values, name, (0.0, float("inf")))


def _levels(values: jax.Array, total: jax.Array, number: int, k: int | jax.Array) -> jax.Array:
    """The levels, given the sum and the number of the scores of the labels.

    Identity: 1 / E = (total + s) / ((n + 1) s), which falls as s grows, so the (k+1)-th smallest E
    is of the (k+1)-th smallest score.
    """
    num_classes = values.shape[-1]
    valid = ~jnp.isnan(values).any(axis=-1) & ~jnp.isnan(total)
    if isinstance(k, int):
        if k == num_classes:
            return _numerics.nan_unless(valid, jnp.zeros(values.shape[:-1], values.dtype))
        score = -_top_k.select_largest(-values, k + 1)[0][..., -1]
        is_all = jnp.zeros((), jnp.bool_)
    else:
        valid &= (k >= 1) & (k <= num_classes)
        is_all = k == num_classes
        places = jnp.clip(k, 0, num_classes - 1)[..., None]
        score = take_along(jnp.sort(values, axis=-1), places)[..., 0]
    # Without the quotients 0 / 0 and inf / inf, even unused ones.
    divisor = jnp.where((score > 0) & jnp.isfinite(score), score, 1)
    share = jnp.where(jnp.isinf(score), 1, (total + divisor) / divisor)
    levels = jnp.where(score > 0, share, jnp.inf) / (number + 1)
    return _numerics.nan_unless(valid, jnp.where(is_all, 0, levels))
