"""Elementary symmetric polynomials in log space, computed with a product tree."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics, _sharding
from topk_jax.operators._top_k import move_classes_last

__all__ = ["log_symmetric_polynomials"]


def log_symmetric_polynomials(log_values: ArrayLike, k: int, *, axis: int = -1) -> jax.Array:
    r"""Logarithms of the elementary symmetric polynomials of degree 0 to k.

    .. math::
        \log \sigma_j(e^x), \qquad
        \sigma_j(v) = \sum_{l_1 < \dots < l_j} v_{l_1} \cdots v_{l_j}, \qquad j = 0, \dots, k

    The gradient of the j-th is a probability for each class: that a random set of j classes
    contains the class, if a set is drawn with probability proportional to the product of its
    values. It adds up to j. Time and memory are O(L k), also in reverse mode.

    In float32, for up to 100,000 entries and arguments of 1e7, the error is :math:`2^{-22}` for
    each level of a binary tree over the classes, relative to the logarithm or to 1.

    Args:
        log_values: floating-point array with L entries x along `axis`; -inf is a value of zero,
            which masks the class. Entries below -1e30 count as -1e30.
        k: static highest degree, from 0 to L.
        axis: the axis of the classes.

    Returns:
        An array of the shape of `log_values`, with k + 1 entries along `axis`, in float32 or
        float64. The j-th is -inf, with a gradient of zero, if fewer than j entries are above -inf.
        NaN where an entry of `log_values` along `axis` is NaN or +inf.

    Raises:
        TypeError: `log_values` is not floating-point, or `k` or `axis` is not a static integer.
        ValueError: `k` is outside [0, L], or `log_values` has no such axis.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import operators
        >>> log_values = jnp.log(jnp.array([1.0, 2.0, 3.0, 0.0]))
        >>> print(jnp.exp(operators.log_symmetric_polynomials(log_values, 2)).round())
        [ 1.  6. 11.]

    See Also:
        `smooth_top_k_hinge`, `top_k_sum`.

    Source: Berrada et al. (2018), "Smooth loss functions for deep top-k classification", section 4.
    """
    last = move_classes_last(log_values, axis, "log_values")
    reason = "the number of classes"
    k = _checks.static_integer(k, "k", minimum=0, maximum=last.shape[-1], reason=reason)
    finite = _numerics.finite_scores(last)
    logs = _sharding.map_examples(functools.partial(_product, k=k), last.ndim - 1, finite)
    # A product with more factors than values above zero is zero. The tree has only finite numbers,
    # and gives a multiple of the floor there.
    num_values = jnp.sum(last > -jnp.inf, axis=-1, keepdims=True)
    degrees = jax.lax.broadcasted_iota(num_values.dtype, logs.shape, logs.ndim - 1)
    logs = jnp.where(degrees > num_values, -jnp.inf, logs)
    return jnp.moveaxis(_numerics.nan_where_invalid_vectors(logs, last), -1, axis)


def _product(log_values: jax.Array, k: int) -> jax.Array:
    """Log coefficients `[..., k+1]` of the product over l of 1 + z exp(x_l), modulo z^(k+1).

    Identity: the coefficient of z^j is sigma_j. Hazard: the values overflow, and a loop over the
    classes is sequential. Choice: log coefficients and a tree of pairwise products. A product
    of m factors has degree min(m, k). Cost: a level has L/m products of O(min(m, k)^2) terms each,
    which is O(L k) in all. An odd level is padded with the polynomial 1. The nodes are the last
    axis, because the coefficients are too few to fill a vector register.
    """
    log_coefficients = jnp.stack([jnp.zeros_like(log_values), log_values], axis=-2)[..., : k + 1, :]
    while (num_nodes := log_coefficients.shape[-1]) > 1:
        half = (num_nodes + 1) // 2
        first, second = log_coefficients[..., :half], log_coefficients[..., half:]
        if num_nodes % 2:
            one = jnp.full((*second.shape[:-1], 1), _numerics.FLOOR, second.dtype)
            second = jnp.concatenate([second, one.at[..., 0, :].set(0)], axis=-1)
        log_coefficients = _multiply(first, second, k)
    return log_coefficients[..., 0]


def _multiply(first: jax.Array, second: jax.Array, k: int) -> jax.Array:
    """Log coefficients `[..., min(2d, k)+1, nodes]` of products of polynomials `[..., d+1, nodes]`.

    Row i has `second` shifted down by i, so that all terms of one degree are aligned. Hazard: XLA
    on the CPU has compiled a shift of rows by a reshape, of a broadcast of padded values, to wrong
    values. Choice: a gather with constant indices. Cost: none, but the backward pass is a scatter
    that adds up to d + 1 numbers, on an accelerator in no fixed order.
    """
    *batch, num_coefficients, _ = first.shape
    degrees = min(2 * num_coefficients - 1, k + 1)
    after = max(0, degrees - num_coefficients)
    padding = [(0, 0)] * len(batch) + [(num_coefficients - 1, after), (0, 0)]
    padded = jnp.pad(second, padding, constant_values=-jnp.inf)
    shifts = np.arange(num_coefficients - 1, -1, -1)[:, None]
    shifted = padded.at[..., shifts + np.arange(degrees)[None], :].get(mode="promise_in_bounds")
    terms = first[..., :, None, :] + shifted
    # Every coefficient has a finite term, so this log-sum-exp is safe.
    largest = jax.lax.stop_gradient(terms.max(axis=-3))
    return largest + jnp.log(jnp.exp(terms - largest[..., None, :, :]).sum(axis=-3))
