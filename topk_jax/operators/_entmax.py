"""Sparse probabilities: entmax, from softmax to sparsemax, and the projection with a sum of k."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _search
from topk_jax._compilation import compiled
from topk_jax.operators._top_k import move_classes_last

__all__ = ["entmax", "sparse_top"]

# Each step of Newton's method on a convex function divides the product of value and slope by four
# or more, from at most the square of the number of classes to the rounding of float64.
_MAX_STEPS = 64
# Below this growth of w, relative to alpha - 1, steps change an offset instead of w.
_COARSE = 2.0**-10
# With at least `_LONG` classes, the search starts with the largest scores of at most `_MAX_BLOCKS`
# blocks of classes.
_LONG, _MAX_BLOCKS = 4096, 512


def entmax(scores: ArrayLike, *, alpha: ArrayLike, axis: int = -1) -> jax.Array:
    r"""Probabilities that are zero for low scores: softmax at alpha = 1, sparsemax at alpha = 2.

    .. math::
        p = \arg\max_{p \ge 0, \; \sum_l p_l = 1} \; p \cdot s
        + \frac{1 - \sum_l p_l^\alpha}{\alpha (\alpha - 1)}
        = \bigl[(\alpha - 1) s - t\bigr]_+^{1 / (\alpha - 1)}

    Here t makes the sum 1. Outside the support the derivatives are zero.

    Args:
        scores, axis: see `topk_jax.operators`.
        alpha: scalar from 1 to 2; larger values make more entries zero.

    Returns:
        An array of the scores' shape. A score of -inf gets 0; if all are -inf, each gets 1 / L.

    Example:
        >>> scores = jnp.array([2.0, 1.0, 0.5, -1.0])
        >>> print(entmax(scores, alpha=1.5).round(4))
        [0.8146 0.1621 0.0233 0.    ]

    Source: Peters, Niculae and Martins (2019), "Sparse sequence-to-sequence models"; Correia,
    Niculae and Martins (2019), "Adaptively sparse transformers", for the derivative in alpha.
    """
    last = move_classes_last(scores, axis)
    alpha = _checks.scalar(alpha, "alpha", last.dtype, at_least=1, at_most=2)
    result = probabilities(_classes.finite_scores(last), alpha)
    return jnp.moveaxis(_classes.nan_where_invalid_scores(result, last), -1, axis)


def sparse_top(scores: ArrayLike, k: ArrayLike, *, axis: int = -1) -> jax.Array:
    r"""The projection of the scores onto the vectors with entries in [0, 1] that sum to k.

    .. math::
        \arg\min_q \Bigl\{ \|q - s\|^2 : 0 \le q \le 1, \; \sum_l q_l = k \Bigr\}
        = \min(1, \max(0, s - \lambda))

    Here lambda is the number for which the sum is k. With k = 1 this is the sparsemax. If the k-th
    score is at least 1 above the next one, the result is exactly 0 and 1.

    Args:
        scores, axis: see `topk_jax.operators`.
        k: the sum. Either an integer from 1 to L, or one integer per example from 0 to L, in an
            array with the scores' shape without `axis`. An array may be traced.

    Returns:
        An array of the scores' shape; NaN along `axis` where a traced k is outside [0, L]. A score
        of -inf gets 0. If fewer than k scores are above -inf, these get 1 each, and the others
        share the rest equally.

    Example:
        >>> print(sparse_top(jnp.array([2.0, 0.5, 0.5, -1.0]), 2))
        [1.  0.5 0.5 0. ]

    Source: Garcin (2023), thesis, equations 6.13 to 6.15 and 6.21; for k = 1, Martins and
    Astudillo (2016), "From softmax to sparsemax".
    """
    last = move_classes_last(scores, axis)
    sums = _checks.ranks(k, last.shape[-1], last.shape[:-1])
    return jnp.moveaxis(compute_sparse_top(last, sums), -1, axis)


@jax.custom_jvp
def probabilities(scores: jax.Array, alpha: jax.Array) -> jax.Array:
    """The entmax of finite scores [..., L]."""
    return solve(scores, alpha).probabilities(scores, alpha)


class Solution(NamedTuple):
    """The largest score, w, the offset and the sum of r, `[..., 1]`, in the terms of `solve`."""

    top: jax.Array
    scale: jax.Array
    offset: jax.Array
    total: jax.Array

    def probabilities(self, scores: jax.Array, alpha: jax.Array) -> jax.Array:
        """The probabilities of classes with these scores, [..., L]."""
        bases, slopes = self.bases(scores, alpha)
        return bases * slopes / self.total

    def bases(self, scores: jax.Array, alpha: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The bases b and b^(1/a - 1) of classes with these scores, [..., L]."""
        return _bases(scores - self.top, self.scale, alpha - 1, self.offset)

    def norm(self, alpha: jax.Array) -> jax.Array:
        """The sum of r to the power a, `[..., 1]`: the quotient of a base and p^a."""
        return _norm(self.total, alpha - 1)


@compiled
def solve(scores: jax.Array, alpha: jax.Array, class_axis_name: Hashable | None = None) -> Solution:
    """Solves for the numbers that determine the entmax of finite scores [..., L].

    Let z be the scores minus the largest, a = alpha - 1, b(w) = (1 + a w z)_+, and r(w) be
    b(w)^(1/a), which is e^z at a = 0. Then p = r(w) / sum r(w), and w = (sum r(w))^a. Unlike the
    threshold t, w keeps its digits if many classes share the probability, and a may be 0. The
    right-hand side is convex in w, so Newton's method from w = 1 increases to the solution. With
    10,000 classes it takes half of the steps from the w of the largest scores of blocks.
    """
    power = alpha - 1
    blocks = _max_of_blocks(scores) if scores.shape[-1] >= _LONG else None
    highest = scores if blocks is None else blocks
    top = _classes.max_classes(highest, class_axis_name, keepdims=True)
    scale = jnp.ones_like(top)
    if blocks is not None:
        scale = _newton(blocks - top, power, scale, class_axis_name).scale
    found = _newton(scores - top, power, scale, class_axis_name)
    return Solution(top, found.scale, found.offset, found.total)


def _max_of_blocks(scores: jax.Array) -> jax.Array:
    """The largest score of each block of classes, [..., B]. Each class is in one block."""
    while scores.shape[-1] > _MAX_BLOCKS:
        half = (scores.shape[-1] + 1) // 2
        padding = [(0, 0)] * (scores.ndim - 1) + [(0, 2 * half - scores.shape[-1])]
        others = jnp.pad(scores[..., half:], padding, constant_values=-jnp.inf)
        scores = jnp.maximum(scores[..., :half], others)
    return scores


class _State(NamedTuple):
    """State of Newton's search: position, sum of r, and previous relative error, `[..., 1]`."""

    scale: jax.Array
    offset: jax.Array
    total: jax.Array
    error: jax.Array
    moves: jax.Array
    steps: int


def _newton(
    gaps: jax.Array, power: jax.Array, scale: jax.Array, class_axis_name: Hashable | None
) -> _State:
    """Newton's method for w, starting at or below the solution.

    If many classes are barely above the threshold, a last bit of w changes their sum. So once w
    hardly grows, the steps change a small number that is added to the bases. A row stops at an
    error of a few last bits, or when rounding keeps the error from falling.
    """
    resolution = 4 * jnp.finfo(gaps.dtype).eps
    # An offset o changes log r by o / a.
    coarse = jnp.maximum(_COARSE * power, resolution)

    def advance(state: _State) -> _State:
        scale, offset = state.scale, state.offset
        bases, slopes = _bases(gaps, scale, power, offset)
        total = _classes.sum_classes(bases * slopes, class_axis_name, keepdims=True)
        slope = _classes.sum_classes(slopes, class_axis_name, keepdims=True)
        norm = _norm(total, power)
        error = jnp.abs(norm / scale - 1)
        moves = (error > resolution) & (error < state.error)
        # The derivative of log r in log w is (b - 1) / (a b) without an offset, and 1 / (a b) in
        # the offset.
        growth = (norm - scale) / (1 + norm * (slope - total) / (total * scale))
        shift = (scale - norm) * total / (norm * slope)
        grows = (offset == 0) & (growth > coarse * scale)
        return _State(
            jnp.where(moves & grows, scale + growth, scale),
            jnp.where(moves & ~grows, offset + shift, offset),
            total,
            error,
            moves,
            state.steps + 1,
        )

    def goes_on(state: _State) -> jax.Array:
        return state.moves.any() & (state.steps < _MAX_STEPS)

    nothing = jnp.zeros_like(scale)
    start = _State(scale, nothing, nothing, nothing + jnp.inf, nothing == 0, 0)
    return jax.lax.while_loop(goes_on, advance, start)


def _bases(
    gaps: jax.Array, scale: jax.Array, power: jax.Array, offset: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The bases b = (1 + a w z)_+, with an offset, and b^(1/a - 1), [..., L]. Their product is r.

    If alpha is known to be 1.5 or 2, XLA removes the logarithm and the exponential, which cost ten
    times as much as the rest.
    """
    logs, bases = log_of_bases(power * gaps * scale, offset)
    # At alpha = 1 and alpha = 2 other formulas hold. At 2 the exponent would be 0, and some
    # logarithms -inf.
    is_inside = (power > 0) & (power < 1)
    exponent = 1 / jnp.where(is_inside, power, 0.5) - 1
    slopes = jnp.exp(jnp.where(is_inside, exponent * logs, gaps))
    slopes = jnp.where(power == 0.5, bases, slopes)
    return bases, jnp.where(power == 1, jnp.sign(bases), slopes)


def _norm(total: jax.Array, power: jax.Array) -> jax.Array:
    norm = jnp.exp(power * jnp.log(total))
    return jnp.where(power == 1, total, jnp.where(power == 0.5, jnp.sqrt(total), norm))


def log_of_bases(bent: jax.Array, offset: jax.Array | float) -> tuple[jax.Array, jax.Array]:
    """The logarithms of the bases b = (1 + x)_+ with a small offset, and the bases.

    log(b) x / (b - 1) is log(1 + x) without the rounding of b. The maximum, which changes no base,
    stands between a product x and the sum: some compiled loops would round the product, others not,
    and the sum of many bases near zero would differ between the search and the result.
    """
    bent = jnp.maximum(bent, -4)
    bases = jnp.maximum(1 + bent + offset, 0)
    moved = bent + offset
    is_one = bases == 1
    ratios = moved / jnp.where(is_one, 1, bases - 1)
    return jnp.where(is_one, moved, jnp.log(bases) * ratios), bases


def _probabilities_jvp(primals: tuple[jax.Array, jax.Array], tangents: tuple[Any, Any]) -> Any:
    result = probabilities(*primals)
    return result, tangent(result, primals[1], *tangents)


probabilities.defjvp(_probabilities_jvp, symbolic_zeros=True)


def tangent(
    result: jax.Array,
    alpha: jax.Array,
    of_scores: Any,
    of_alpha: Any,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    """The tangent of the probabilities, from the tangents of the scores and of alpha.

    Differentiates s_l - c = (p_l^(alpha - 1) - 1) / (alpha - 1) with sum p = 1.
    """
    direction = jnp.zeros_like(result)
    if not isinstance(of_scores, SymbolicZero):
        direction = direction + of_scores
    if not isinstance(of_alpha, SymbolicZero):
        direction = direction - deformation_slope(result, alpha) * of_alpha
    return on_simplex(support_power(result, 2 - alpha), direction, class_axis_name)


def support_power(values: jax.Array, exponent: jax.Array) -> jax.Array:
    """The powers of the values, and 0 where a value is 0, with finite derivatives."""
    positive = jnp.where(values == 0, 1, values)
    return jnp.where(values == 0, 0, jnp.exp(exponent * jnp.log(positive)))


def on_simplex(
    weights: jax.Array, direction: jax.Array, class_axis_name: Hashable | None = None
) -> jax.Array:
    """The weighted direction without its weighted mean, which keeps a sum constant, [..., L]."""
    weighted = weights * direction
    total = _classes.sum_classes(weights, class_axis_name, keepdims=True)
    mean = _classes.sum_classes(weighted, class_axis_name, keepdims=True) / jnp.where(
        total == 0, 1, total
    )
    return weighted - weights * mean


def deformed_log(values: jax.Array, alpha: jax.Array) -> jax.Array:
    """(v^(alpha - 1) - 1) / (alpha - 1), the logarithm at alpha = 1; 0 where a value is 0."""
    power = alpha - 1
    logs = _logs(values)
    return jnp.where(power > 0, jnp.expm1(power * logs) / jnp.where(power > 0, power, 1), logs)


def deformation_slope(values: jax.Array, alpha: jax.Array) -> jax.Array:
    """The derivative of `deformed_log` in alpha, 0 where a value is 0.

    It is log(v)^2 chi(y) with y = (alpha - 1) log v and chi(y) = (1 + (y - 1) e^y) / y^2, whose
    series replaces it near y = 0, where the numerator cancels.
    """
    logs = _logs(values)
    exponents = (alpha - 1) * logs
    is_small = jnp.abs(exponents) < 0.5
    small = jnp.where(is_small, exponents, 0)
    large = jnp.where(is_small, -1, exponents)
    series = jnp.zeros_like(small)
    for term in reversed(range(15)):
        series = series * small + (term + 1) / math.factorial(term + 2)
    closed = (1 + (large - 1) * jnp.exp(large)) / large**2
    return logs**2 * jnp.where(is_small, series, closed)


def _logs(values: jax.Array) -> jax.Array:
    return jnp.log(jnp.where(values == 0, 1, values))


def compute_sparse_top(scores: jax.Array, sums: jax.Array) -> jax.Array:
    """`sparse_top` of checked scores [..., L] and sums [...]."""
    in_range = ((sums >= 0) & (sums <= scores.shape[-1]))[..., None]
    marked = jnp.where(in_range, scores, jnp.nan)
    finite = _classes.nan_where_invalid_scores(_classes.finite_scores(scores), marked)
    return _project(finite, sums[..., None].astype(scores.dtype))


@jax.custom_jvp
def _project(scores: jax.Array, k: jax.Array) -> jax.Array:
    """The projection of scores [..., L] for sums k [..., 1] of the scores' dtype.

    Near a threshold of 1e4 float32 has steps of 1e-3, and 1e5 tied classes multiply the error by
    1e5; cumulative sums lose as much. So a search finds the next float above lambda, and Newton's
    method their difference.
    """
    above = _float_above_threshold(scores, k)
    # No score is strictly between lambda and the next float above it. So only coordinates that
    # reach 1 can change the slope; these are few and within rounding. The first step is exact, or
    # two more steps correct it.
    shifted = scores - above
    offset = jnp.zeros_like(k)
    for _ in range(3):
        projection = jnp.clip(shifted - offset, 0, 1)
        moving = (shifted >= offset) & (projection < 1)
        offset -= _missing(projection, k) / jnp.maximum(
            moving.sum(axis=-1, keepdims=True), 1
        ).astype(k.dtype)
    projection = jnp.clip(shifted - offset, 0, 1)
    # If the k-th score is at least 1 above the next, q is exactly 0 or 1. A rounded value would
    # make the Jacobian nonzero.
    chosen = projection > 0.5
    lowest_chosen = jnp.where(chosen, scores, jnp.inf).min(axis=-1, keepdims=True)
    highest_other = jnp.where(chosen, -jnp.inf, scores).max(axis=-1, keepdims=True)
    num_chosen = chosen.sum(axis=-1, keepdims=True).astype(k.dtype)
    separated = (num_chosen == k) & (lowest_chosen - highest_other >= 1)
    return jnp.where(separated, chosen.astype(k.dtype), projection)


@_project.defjvp
def _project_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    projection = _project(*primals)
    moving = ((projection > 0) & (projection < 1)).astype(projection.dtype)
    # XLA rewrites a product with converted booleans as a selection, which would lose a NaN tangent.
    moving = jnp.where(jnp.isnan(projection), projection, moving)
    num_moving = jnp.maximum(moving.sum(axis=-1, keepdims=True), 1)
    tangent = moving * tangents[0]
    mean = tangent.sum(axis=-1, keepdims=True) / num_moving
    return projection, tangent - moving * mean


@compiled
def _float_above_threshold(scores: jax.Array, k: jax.Array) -> jax.Array:
    """The smallest float t with sum clip(scores - t, 0, 1) < k, or the largest score: [..., 1]."""
    highest = _search.to_ordinals(scores.max(axis=-1, keepdims=True))
    minus_infinity = jnp.array(-jnp.inf, scores.dtype)
    lowest = jnp.full_like(highest, _search.to_ordinals(minus_infinity))

    def is_not_above(ordinals: jax.Array) -> jax.Array:
        threshold = _search.to_floats(ordinals, scores.dtype)
        return ~(_missing(jnp.clip(scores - threshold, 0, 1), k) > 0)

    not_above = _search.last_where(is_not_above, lowest, highest)
    one = highest.dtype.type(1)
    return _search.to_floats(jnp.minimum(not_above + one, highest), scores.dtype)


def _missing(projection: jax.Array, k: jax.Array) -> jax.Array:
    """The gap k - sum q, [..., 1]. Ones are counted separately to keep the digits of the rest."""
    is_one = projection == 1
    num_ones = is_one.sum(axis=-1, keepdims=True).astype(k.dtype)
    return k - num_ones - jnp.where(is_one, 0, projection).sum(axis=-1, keepdims=True)
