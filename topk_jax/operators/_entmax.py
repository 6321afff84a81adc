"""Entmax: the family of sparse probabilities from the softmax to the sparsemax."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics
from topk_jax.operators._top_k import classes_last

__all__ = ["entmax"]

# Newton's method on a convex function reduces the product of value and slope four times or more
# at each step, from the square of the number of classes to the rounding of float64 at the most.
_MAX_STEPS = 64


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

    where the last derivative is at a fixed :math:`p_l`. Outside the support the derivatives are
    zero.

    Args:
        scores: floating-point array with L entries along `axis`.
        alpha: scalar from 1 to 2; larger values make more entries zero. May be traced.
        axis: the axis of the classes.

    Returns:
        An array of the scores' shape, in float32 or float64; NaN along `axis` where a score is
        NaN. A score of -inf gets 0. If all scores are -inf, each gets 1 / L.

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

    Source: Peters, Niculae and Martins (2019), "Sparse sequence-to-sequence models"; Correia,
    Niculae and Martins (2019), "Adaptively sparse transformers", for the derivative in alpha.
    """
    last = classes_last(scores, axis)
    alpha = _checks.scalar(alpha, "alpha", last.dtype, at_least=1, at_most=2)
    finite = _numerics.nan_where_invalid_vectors(_numerics.finite_scores(last), last)
    return jnp.moveaxis(probabilities(finite, alpha), -1, axis)


@jax.custom_jvp
def probabilities(scores: jax.Array, alpha: jax.Array) -> jax.Array:
    """The entmax of finite scores [..., L].

    Identity: let z be the scores less the largest, a = alpha - 1, and
    r(w) = (1 + a w z)_+^(1/a), which is e^z at a = 0. Then p = r(w) / sum r(w) where w solves
    w = (sum r(w))^a, that is w = 1 / p_max^a. Hazard: the threshold t is 1 less a number near 1
    where many classes share the probability, and its digits are lost; and all terms are divided by
    a, which may be 0. Choice: w has full relative precision for any alpha. The right-hand side is
    a norm of convex functions of w, so Newton's method from w = 1 increases to the solution.
    Cost: two logarithms and an exponential per class and step; usually there are three to six
    steps, and three to correct the last bits.
    """
    gaps = scores - scores.max(axis=-1, keepdims=True)
    power = alpha - 1

    def step(scale: jax.Array) -> jax.Array:
        ratios, bases = _ratios(gaps, scale, power)
        total = ratios.sum(axis=-1, keepdims=True)
        norm = jnp.exp(power * jnp.log(total))
        slopes = jnp.where(bases > 0, ratios * gaps / bases, 0)
        slope = power * norm / total * slopes.sum(axis=-1, keepdims=True)
        return scale + (norm - scale) / (1 - slope)

    def grows(state: tuple[jax.Array, jax.Array, int]) -> jax.Array:
        scale, following, steps = state
        resolution = 4 * jnp.finfo(scores.dtype).eps
        return (following > scale * (1 + resolution)).any() & (steps < _MAX_STEPS)

    def advance(state: tuple[jax.Array, jax.Array, int]) -> tuple[jax.Array, jax.Array, int]:
        _, following, steps = state
        return following, step(following), steps + 1

    start = jnp.ones_like(gaps[..., :1])
    _, scale, _ = jax.lax.while_loop(grows, advance, (start, step(start), 0))
    # Where many classes are barely above the threshold, a last bit of w changes their sum. A small
    # number that is added to their bases corrects it.
    offset = jnp.zeros_like(scale)
    for _ in range(2):
        ratios, bases = _ratios(gaps, scale, power, offset)
        total = ratios.sum(axis=-1, keepdims=True)
        norm = jnp.exp(power * jnp.log(total))
        slopes = jnp.where(bases > 0, ratios / bases, 0).sum(axis=-1, keepdims=True)
        offset += (scale - norm) * total / (norm * slopes)
    ratios, _ = _ratios(gaps, scale, power, offset)
    return ratios / ratios.sum(axis=-1, keepdims=True)


def _ratios(
    gaps: jax.Array, scale: jax.Array, power: jax.Array, offset: jax.Array | float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """The ratios (1 + a w z)_+^(1/a) to the largest probability, and their bases, [..., L].

    The offset is added to the bases.
    """
    logs, bases = log_of_bases(power * gaps * scale, offset)
    logs = jnp.where(power > 0, logs / jnp.where(power > 0, power, 1), gaps)
    return jnp.exp(logs), bases


def log_of_bases(bent: jax.Array, offset: jax.Array | float) -> tuple[jax.Array, jax.Array]:
    """The logarithms of (1 + x)_+ plus an offset, where 1 + x is positive, and these bases.

    An offset far below the last bit of x has its effect on a base that is near zero.
    """
    bent = jnp.maximum(bent, -1)
    bases = jnp.where(bent > -1, jnp.maximum(1 + bent + offset, 0), 0)
    return jnp.where(bent < -0.5, jnp.log(bases), jnp.log1p(bent + offset)), bases


def _probabilities_jvp(primals: tuple[jax.Array, jax.Array], tangents: tuple[Any, Any]) -> Any:
    """Differentiates s_l - c = (p_l^(alpha - 1) - 1) / (alpha - 1) with sum p = 1."""
    scores, alpha = primals
    of_scores, of_alpha = tangents
    result = probabilities(scores, alpha)
    direction = jnp.zeros_like(result)
    if not isinstance(of_scores, SymbolicZero):
        direction = direction + of_scores
    if not isinstance(of_alpha, SymbolicZero):
        direction = direction - deformation_slope(result, alpha) * of_alpha
    return result, on_simplex(support_power(result, 2 - alpha), direction)


probabilities.defjvp(_probabilities_jvp, symbolic_zeros=True)


def support_power(values: jax.Array, exponent: jax.Array) -> jax.Array:
    """The powers of the values, and 0 where a value is 0, with finite derivatives."""
    positive = jnp.where(values == 0, 1, values)
    return jnp.where(values == 0, 0, jnp.exp(exponent * jnp.log(positive)))


def on_simplex(weights: jax.Array, direction: jax.Array) -> jax.Array:
    """The weighted direction without its weighted mean, which keeps a sum constant, [..., L]."""
    weighted = weights * direction
    total = weights.sum(axis=-1, keepdims=True)
    mean = weighted.sum(axis=-1, keepdims=True) / jnp.where(total == 0, 1, total)
    return weighted - weights * mean


def deformed_log(values: jax.Array, alpha: jax.Array) -> jax.Array:
    """(v^(alpha - 1) - 1) / (alpha - 1), the logarithm at alpha = 1; 0 where a value is 0."""
    power = alpha - 1
    logs = _logs(values)
    return jnp.where(power > 0, jnp.expm1(power * logs) / jnp.where(power > 0, power, 1), logs)


def deformation_slope(values: jax.Array, alpha: jax.Array) -> jax.Array:
    """The derivative of `deformed_log` in alpha, 0 where a value is 0.

    Identity: log(v)^2 chi(y) with y = (alpha - 1) log v and chi(y) = (1 + (y - 1) e^y) / y^2.
    Hazard: the numerator cancels near y = 0. Choice: its series there. Cost: fifteen products,
    only where alpha is differentiated.
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
