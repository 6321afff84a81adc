"""Entmax: the family of sparse probabilities from the softmax to the sparsemax."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _numerics
from topk_jax._compilation import compiled
from topk_jax.operators._top_k import move_classes_last

__all__ = ["entmax"]

# Each step of Newton's method on a convex function divides the product of value and slope by four
# or more. It starts at most at the square of the number of classes, and ends at the rounding of
# float64.
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

    Here t is the number for which the sum is 1. With :math:`q_l = p_l^{2 - \alpha}` where
    :math:`p_l > 0`, and 0 elsewhere, the derivatives are

    .. math::
        \frac{\partial p}{\partial s} = \mathrm{diag}(q) - \frac{q q^\top}{\sum_l q_l}, \qquad
        \frac{\partial p}{\partial \alpha} = -\frac{\partial p}{\partial s} \, \kappa, \qquad
        \kappa_l = \frac{\partial}{\partial \alpha} \frac{p_l^{\alpha - 1} - 1}{\alpha - 1}

    The last derivative is at a fixed :math:`p_l`. Outside the support the derivatives are zero.

    Args:
        scores: floating-point array with L entries along `axis`.
        alpha: scalar from 1 to 2; larger values make more entries zero. May be traced.
        axis: the axis of the classes.

    Returns:
        An array of the scores' shape, in float32 or float64; NaN along `axis` where a score is NaN
        or +inf. A score of -inf gets 0. If all scores are -inf, each gets 1 / L.

    Raises:
        TypeError: `scores` is not floating-point, `alpha` is not real, or `axis` is not a static
            integer.
        ValueError: `alpha` is not a scalar in [1, 2], or `scores` has no such axis.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import operators
        >>> scores = jnp.array([2.0, 1.0, 0.5, -1.0])
        >>> print(operators.entmax(scores, alpha=1.5).round(4))
        [0.8146 0.1621 0.0233 0.    ]

    See Also:
        `sparse_top`, `entmax_loss`.

    Source: Peters, Niculae and Martins (2019), "Sparse sequence-to-sequence models"; Correia,
    Niculae and Martins (2019), "Adaptively sparse transformers", for the derivative in alpha.
    """
    last = move_classes_last(scores, axis)
    alpha = _checks.scalar(alpha, "alpha", last.dtype, at_least=1, at_most=2)
    result = probabilities(_numerics.finite_scores(last), alpha)
    return jnp.moveaxis(_numerics.nan_where_invalid_vectors(result, last), -1, axis)


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

    Identity: let z be the scores minus the largest score, a = alpha - 1, b(w) = (1 + a w z)_+ and
    r(w) = b(w)^(1/a), which is e^z at a = 0. Then p = r(w) / sum r(w), and w solves w = (sum
    r(w))^a, that is w = 1 / p_max^a. Hazard: if many classes share the probability, the threshold t
    is the difference of 1 and a number near 1, which loses digits. All terms are divided by a,
    which may be 0. Choice: w has full relative precision for any alpha. The right-hand side is a
    norm of convex functions of w, so Newton's method from w = 1 increases to the solution. Cost:
    the steps of `_search`.

    Identity: with fewer classes the sum is smaller, and so is w. Hazard: from w = 1, the search
    takes seven steps or more over 10,000 classes. Choice: start at the w of the largest scores of
    the blocks. Cost: seven cheap steps over the blocks, and half of the steps over the classes.

    If the classes are split over devices, the devices exchange two sums per example in each step.
    """
    power = alpha - 1
    blocks = _max_of_blocks(scores) if scores.shape[-1] >= _LONG else None
    highest = scores if blocks is None else blocks
    top = _classes.max_classes(highest, class_axis_name, keepdims=True)
    scale = jnp.ones_like(top)
    if blocks is not None:
        scale = _search(blocks - top, power, scale, class_axis_name).scale
    found = _search(scores - top, power, scale, class_axis_name)
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


def _search(
    gaps: jax.Array, power: jax.Array, scale: jax.Array, class_axis_name: Hashable | None
) -> _State:
    """Newton's method for w, starting at or below the solution.

    Hazard: if many classes are barely above the threshold, a last bit of w changes their sum.
    Choice: once w hardly grows, the steps change a small number that is added to the bases. A row
    stops at an error of a few last bits, or when rounding keeps the error from falling. Cost:
    usually four to seven steps. A step takes two sums over the classes: of products if alpha is
    known to be 1.5 or 2, of powers otherwise.
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

    Hazard: a logarithm and an exponential cost ten times as much as the rest of a step. Choice:
    products if alpha is 1.5 or 2. XLA removes the logarithm and the exponential if it knows alpha.
    Cost: two selections if it does not.
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

    An offset far below the last bit of x still changes a base that is near zero.

    Identity: log(1 + x) = log(b) x / (b - 1). Hazard: b has lost the digits of an x near 0. Choice:
    in this form the rounding of b cancels. Cost: one logarithm, instead of two for `log1p` and
    `log`.

    Hazard: some compiled loops round a product x before they add 1, and others do not. The sum of
    many bases near zero then differs between the search and the result. Choice: a maximum between
    the product and the sum, which does not change any base. Cost: none.
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

    Identity: log(v)^2 chi(y) with y = (alpha - 1) log v and chi(y) = (1 + (y - 1) e^y) / y^2.
    Hazard: the numerator cancels near y = 0. Choice: its series there. Cost: fifteen products, only
    if alpha is differentiated.
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
