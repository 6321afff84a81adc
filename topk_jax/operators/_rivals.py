"""Soft memberships of other kinds in the k largest scores, which the field compares with."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from topk_jax import _checks, _classes
from topk_jax._compilation import compiled
from topk_jax.operators._entmax import log_of_bases, on_simplex, support_power
from topk_jax.operators._top_k import move_classes_last, select_kth

__all__ = ["p_norm_top_k", "sigmoid_top_k", "successive_softmax_top_k"]

REASON_BETWEEN = "the number of classes without one"
# Newton's method first. Halving an interval of log L then needs a step per bit, in float64 too.
_NEWTON_STEPS, _MAX_STEPS = 16, 80


def sigmoid_top_k(scores: ArrayLike, k: int, *, tau: ArrayLike, axis: int = -1) -> jax.Array:
    r"""Soft memberships in the k largest scores, without a constraint on their sum.

    .. math::
        p_i = \mathrm{sigmoid}\Bigl(\frac{s_i - \theta}{\tau}\Bigr), \qquad
        \theta = \frac{s_{[k]} + s_{[k+1]}}2

    As tau grows the memberships tend to 1/2, so that they sum to L / 2 and not to k.

    Args:
        scores, axis: see `topk_jax.operators`.
        k: static size of the set, from 1 to L - 1.
        tau: positive scalar temperature, in the units of the scores.

    Returns:
        An array of the scores' shape. A score of -inf gets 0. If fewer than k scores are above
        -inf, these get 1, and the others 1/2.

    Example:
        >>> scores = jnp.array([2.0, 0.5, -0.5, -2.0])
        >>> memberships = sigmoid_top_k(scores, 2, tau=0.5)
        >>> print(*(f"{membership:.3f}" for membership in memberships))
        0.982 0.731 0.269 0.018

    Source: Zhu et al. (2025), "Differentiable fast top-k selection for large-scale recommendation"
    (DFTopK).
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1] - 1, reason=REASON_BETWEEN)
    tau = _checks.scalar(tau, "tau", last.dtype, above=0)
    return jnp.moveaxis(jax.nn.sigmoid(distances_from_middle(last, k, tau)), -1, axis)


def successive_softmax_top_k(
    scores: ArrayLike, k: int, *, tau: ArrayLike, axis: int = -1
) -> jax.Array:
    r"""Soft memberships in the k largest scores: the sum of k successive softmaxes.

    .. math::
        p^{(j)} = \mathrm{softmax}\bigl(a^{(j)} / \tau\bigr), \qquad
        a^{(1)} = s, \qquad a^{(j + 1)} = a^{(j)} + \log(1 - p^{(j)}), \qquad
        m = \sum_{j=1}^k p^{(j)}

    The memberships add up to k. A single one can exceed 1.

    Args:
        scores, axis: see `topk_jax.operators`.
        k: static size of the set, from 1 to L.
        tau: positive scalar temperature, in the units of the scores.

    Returns:
        An array of the scores' shape. A score of -inf gets 0 if at least k others are above -inf.

    Example:
        >>> scores = jnp.array([2.0, 0.5, -0.5, -2.0])
        >>> memberships = successive_softmax_top_k(scores, 2, tau=0.5)
        >>> print(*(f"{membership:.3f}" for membership in memberships))
        0.999 0.868 0.127 0.006

    Source: Plötz and Roth (2018), "Neural nearest neighbors networks"; Xie and Ermon (2019),
    "Reparameterizable subset sampling via continuous relaxations"; thesis, section 4.2.
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1])
    tau = _checks.scalar(tau, "tau", last.dtype, above=0)
    memberships = jnp.exp(log_successive_softmax(last, k, tau).of_rounds).sum(axis=0)
    return jnp.moveaxis(_classes.nan_where_invalid_scores(memberships, last), -1, axis)


def p_norm_top_k(
    scores: ArrayLike, k: int, *, p: ArrayLike, regularization: ArrayLike, axis: int = -1
) -> jax.Array:
    r"""Memberships in [0, 1] that sum to k, from a top-k with a p-norm regularization.

    .. math::
        \arg\max_{0 \le m \le 1, \; \sum_l m_l = k} \; m \cdot s - \frac{\lambda}{p} \|m\|_p^p
        = \min\Bigl(1, \Bigl(\frac{s - t}{\lambda}\Bigr)_+^{1 / (p - 1)}\Bigr)

    Here t is the number for which the sum is k. At p = 2 this is `sparse_top` of
    :math:`s / \lambda`. With k = 1 and :math:`\lambda = 1 / (p - 1)` it is `entmax` with
    alpha = p.

    Args:
        scores, axis: see `topk_jax.operators`.
        k: static number of classes, from 1 to L.
        p: scalar, greater than 1 and at most 2; the paper has 2 and 4/3.
        regularization: positive scalar in the units of the scores (lambda above).

    Returns:
        An array of the scores' shape. A score of -inf gets 0. If fewer than k scores are above
        -inf, these get 1 each, and the others share the rest equally.

    Example:
        >>> scores = jnp.array([3.0, 1.0, 0.5, -1.0])
        >>> print(p_norm_top_k(scores, 2, p=4 / 3, regularization=1.0).round(4))
        [1.     0.8993 0.1007 0.    ]

    Source: Sander et al. (2023), "Fast, differentiable and sparse top-k: a convex analysis
    perspective", the mask with p-norm regularization.
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1])
    p = _checks.scalar(p, "p", last.dtype, above=1, at_most=2)
    regularization = _checks.scalar(regularization, "regularization", last.dtype, above=0)
    finite = _classes.finite_scores(last)
    kth = jax.lax.stop_gradient(select_kth(finite, k)[0])
    mask = _mask(k, finite - kth, p, regularization)
    return jnp.moveaxis(_classes.nan_where_invalid_scores(mask, last), -1, axis)


def distances_from_middle(scores: jax.Array, k: int, tau: jax.Array) -> jax.Array:
    """(s - theta) / tau of scores [..., L], theta between s_[k] and s_[k+1]; NaN beside a NaN."""
    finite = _classes.nan_where_invalid_scores(_classes.finite_scores(scores), scores)
    # Some selections rank -0 below 0. The classes before the k-th would then be more than k.
    finite = _classes.with_slope_of(jnp.where(finite == 0, 0, finite), finite)
    kth, index = select_kth(finite, k)
    classes = jax.lax.broadcasted_iota(index.dtype, finite.shape, finite.ndim - 1)
    before = (finite > kth) | ((finite == kth) & (classes <= index))
    # The floor of masked classes is above -inf, so that these can be next too.
    following, _ = select_kth(jnp.where(before, -jnp.inf, finite), 1)
    # Not (s - theta): the middle of two neighbouring floats is rounded to one of them.
    return ((finite - kth) + (finite - following)) / (2 * tau)


class Rounds(NamedTuple):
    """The logarithms of the shares of each round, and of what is left before it, [k, ..., L]."""

    of_rounds: jax.Array
    left_before: jax.Array


@compiled
def log_successive_softmax(scores: jax.Array, k: int, tau: jax.Array) -> Rounds:
    """The k rounds for scores [..., L]."""

    def advance(logits: jax.Array, _: None) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        first = logits.argmax(axis=-1)
        largest = _classes.is_label(logits, first)
        others = jax.nn.logsumexp(
            jnp.where(largest, _classes.FLOOR, logits), axis=-1, keepdims=True
        )
        log_shares = jax.nn.log_softmax(logits, axis=-1)
        # Not the maximum, whose derivative several equal logits share.
        top = _classes.take_along(logits, first[..., None])
        # If a share rounds to 1, log(1 - p) is infinite. So for the largest share, 1 - p is the
        # share of all others. The other shares are at most 1/2.
        of_largest = -jax.nn.softplus(top - others)
        small = jnp.where(largest, _classes.FLOOR, log_shares)
        log_left = jnp.where(largest, of_largest, jnp.log1p(-jnp.exp(small)))
        # A small tau would make the quotient infinite, and its derivative in tau NaN.
        is_far = log_left < _classes.FLOOR * jax.lax.stop_gradient(tau)
        fall = jnp.where(is_far, _classes.FLOOR, jnp.where(is_far, 0, log_left) / tau)
        return jnp.maximum(logits + fall, _classes.FLOOR), (log_shares, log_left)

    finite = _classes.finite_scores(scores)
    shifted = finite - jax.lax.stop_gradient(finite.max(axis=-1, keepdims=True))
    start = jnp.maximum(shifted / tau, _classes.FLOOR)
    _, (of_rounds, left) = jax.lax.scan(advance, start, length=k)
    return Rounds(of_rounds, jnp.cumsum(left, axis=0) - left)


# The mask [..., L], and the bases 1 + g / v.
_Entries = tuple[jax.Array, jax.Array]


class _State(NamedTuple):
    """State of the search for log m_k: previous and next position, and the bounds, [..., 1]."""

    current: jax.Array
    following: jax.Array
    low: jax.Array
    high: jax.Array
    steps: int


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
@compiled
def _mask(k: int, gaps: jax.Array, p: jax.Array, regularization: jax.Array) -> jax.Array:
    """The mask, from the scores minus the k-th largest score, [..., L].

    With a = p - 1 and g the gaps over lambda, m = v^(1/a) (1 + g / v)_+^(1/a), at most 1, for
    v = m_k^a. The unknown is log m_k, between -log(L - k + 1) and 0: a threshold of the scores
    loses its digits if many classes share the mask, and v if a is small. Newton's method finds it;
    if it leaves the interval with the solution, or takes long, the interval is halved.
    """
    gaps = gaps / regularization
    power = p - 1
    # The lower bound leaves room for rounding.
    lowest = -math.log(gaps.shape[-1] - k + 1) - 1

    def entries(log_kth: jax.Array, offset: jax.Array | float = 0.0) -> _Entries:
        bent = gaps * jnp.exp(-power * log_kth)
        logs, bases = log_of_bases(bent, offset)
        return jnp.exp(jnp.minimum(log_kth + logs / power, 0)), bases

    def sum_below_one(mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The required sum of the entries below 1, and their sum."""
        num_ones = (mask == 1).sum(axis=-1, keepdims=True).astype(mask.dtype)
        return k - num_ones, jnp.where(mask == 1, 0, mask).sum(axis=-1, keepdims=True)

    def newton_step(mask: jax.Array, bases: jax.Array) -> jax.Array:
        """The number that Newton's method adds to all bases; infinity if there is no step."""
        wanted, total = sum_below_one(mask)
        has_slope = (mask < 1) & (bases > 0)
        slopes = jnp.where(has_slope, mask / jnp.where(has_slope, bases, 1), 0)
        slopes = slopes.sum(axis=-1, keepdims=True)
        can_step = (wanted > 0) & (slopes > 0)
        ratio = jnp.where(can_step, wanted, 1) / jnp.where(can_step, total, 1)
        growth = jnp.expm1(power * jnp.log(ratio))
        return jnp.where(can_step, total * growth / jnp.where(can_step, slopes, 1), jnp.inf)

    def advance(state: _State) -> _State:
        log_kth, low, high, steps = state.following, state.low, state.high, state.steps
        mask, bases = entries(log_kth)
        wanted, total = sum_below_one(mask)
        low = jnp.where(total < wanted, log_kth, low)
        high = jnp.where(total > wanted, log_kth, high)
        newton = log_kth + jnp.log1p(jnp.maximum(newton_step(mask, bases), -1)) / power
        is_safe = (low <= newton) & (newton <= high) & (steps < _NEWTON_STEPS)
        following = jnp.where(is_safe, newton, (low + high) / 2)
        following = jnp.where(total == wanted, log_kth, following)
        return _State(log_kth, following, low, high, steps + 1)

    def moves(state: _State) -> jax.Array:
        resolution = 4 * jnp.finfo(gaps.dtype).eps
        step = jnp.abs(state.following - state.current)
        has_moved = step > resolution * jnp.maximum(1, jnp.abs(state.current))
        return has_moved.any() & (state.steps < _MAX_STEPS)

    # The mask of k scores far above the others is found at once, and exactly.
    zeros = jnp.zeros_like(gaps[..., :1])
    start = _State(zeros, zeros, zeros + lowest, zeros, 0)
    log_kth = jax.lax.while_loop(moves, advance, advance(start)).following
    # If many classes are barely above t, a last bit of log m_k changes their sum. A small number
    # that is added to their bases corrects it.
    offset = jnp.zeros_like(log_kth)
    for _ in range(2):
        step = newton_step(*entries(log_kth, offset))
        offset += jnp.where(jnp.abs(step) < 1, step, 0)
    mask, _ = entries(log_kth, offset)
    # What rounding left of the sum is shared out.
    wanted, total = sum_below_one(mask)
    scale = jnp.where(total > 0, wanted / jnp.where(total > 0, total, 1), 1)
    return jnp.where(mask == 1, 1, jnp.minimum(scale * mask, 1))


def _mask_jvp(k: int, primals: tuple[jax.Array, ...], tangents: tuple[Any, ...]) -> Any:
    """Differentiates s_l - t = lambda m_l^(p - 1) with sum m = k."""
    _, p, regularization = primals
    of_gaps, of_p, of_regularization = tangents
    mask = _mask(k, *primals)
    powers = support_power(mask, p - 1)
    direction = jnp.zeros_like(mask)
    if not isinstance(of_gaps, SymbolicZero):
        direction = direction + of_gaps
    if not isinstance(of_p, SymbolicZero):
        logs = jnp.log(jnp.where(mask == 0, 1, mask))
        direction = direction - regularization * powers * logs * of_p
    if not isinstance(of_regularization, SymbolicZero):
        direction = direction - powers * of_regularization
    weights = support_power(mask, 2 - p) / (regularization * (p - 1))
    return mask, on_simplex(jnp.where(mask == 1, 0, weights), direction)


_mask.defjvp(_mask_jvp, symbolic_zeros=True)
