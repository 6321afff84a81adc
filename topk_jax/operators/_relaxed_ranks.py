"""Relaxed ranks: the probability of each class to have rank j, by sorts with derivatives."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics, _sharding
from topk_jax._compilation import compiled
from topk_jax.operators import _sorting_networks, _swaps
from topk_jax.operators._neural_sort import log_neural_sort
from topk_jax.operators._soft_sort import log_soft_sort
from topk_jax.operators._top_k import move_classes_last

__all__ = ["relaxed_ranks"]

_NETWORKS = {"bitonic": _sorting_networks.bitonic, "odd_even": _sorting_networks.odd_even}
_METHODS = ("bitonic", "neural_sort", "odd_even", "soft_sort")


class Relaxation(NamedTuple):
    """A method with its parameters, checked. `art_lambda` is None if it is known to be 0."""

    method: str
    tau: jax.Array
    swap: str
    art_lambda: jax.Array | None


def relaxed_ranks(
    scores: ArrayLike,
    k: int,
    *,
    method: str,
    tau: ArrayLike,
    swap: str = "cauchy",
    art_lambda: ArrayLike = 0.0,
    axis: int = -1,
) -> jax.Array:
    r"""The relaxed probabilities that each class has rank j, for the first k ranks.

    With :math:`s_{[1]} \ge s_{[2]} \ge \dots` the methods "soft_sort" and "neural_sort" are

    .. math::
        P_{j,c} = \operatorname{softmax}_c \Bigl(\frac{-|s_c - s_{[j]}|}{\tau}\Bigr), \qquad
        P_{j,c} = \operatorname{softmax}_c \Bigl(
        \frac{(L + 1 - 2j) s_c - \sum_l |s_c - s_l|}{\tau}\Bigr)

    The methods "bitonic" and "odd_even" are sorting networks. A comparator with the scores a and b
    keeps them, in ascending order, with the probability f(v), and leaves f(v) a + (1 - f(v)) b and
    (1 - f(v)) a + f(v) b in its two lanes. P is the product of these mixtures over the network.

    .. math::
        v = \frac{b - a}{\tau |b - a|^\lambda}, \qquad
        f(v) = \begin{cases}
        1 / (1 + e^{-v}) & \text{logistic} \\
        \frac12 + \frac1\pi \arctan v & \text{cauchy} \\
        \frac12 + v \text{ up to } |v| = \frac14, \text{ then }
        1 - \frac1{16 v} \text{ or } \frac1{16 |v|} & \text{optimal}
        \end{cases}

    As tau goes to 0, P becomes the permutation that sorts the scores. Each rank has probabilities
    that sum to 1. The sum over all ranks of a class is 1 only with a network. With the other
    methods, the sum over some ranks can exceed 1.

    A network rounds the scores that it mixes. So the error of its probabilities grows with the
    range of the scores over tau: up to 4e-3 in float32 was measured for a range of 2e4 and tau =
    0.3.

    Args:
        scores: floating-point array with L entries along `axis`.
        k: static number of ranks, from 1 to L.
        method: "soft_sort", "neural_sort", "bitonic" or "odd_even". Per example, their numbers take
            k L, k L, L log(L)^2 and L^2 of memory. Networks depend on the order of the classes.
        tau: positive scalar temperature, in the units of the scores (to the power of
            1 - `art_lambda`). May be traced.
        swap: f for networks: "logistic", "cauchy" or "optimal". Other methods do not use it.
        art_lambda: scalar lambda of the activation replacement trick, at least 0 and less than 1,
            for networks: 0 is without. May be traced.
        axis: the axis of the classes.

    Returns:
        An array in float32 or float64 with `axis` replaced by two axes, the ranks and the classes:
        `[..., k, L]`. NaN where a score is NaN or +inf. A class with a score of -inf has
        probability 0 for ranks that other classes can have.

    Raises:
        TypeError: `scores` is not floating-point, `k`, `axis`, `method` or `swap` is not static, or
            `tau` or `art_lambda` is not real.
        ValueError: `k` is outside [1, L], `method` or `swap` is unknown, `tau` is not a positive
            scalar, `art_lambda` is not a scalar in [0, 1), or `scores` has no such axis.

    Example:
        >>> import jax.numpy as jnp
        >>> from topk_jax import operators
        >>> scores = jnp.array([1.0, 3.0, 2.0])
        >>> for row in operators.relaxed_ranks(scores, 2, method="soft_sort", tau=0.5):
        ...     print(*(f"{probability:.2f}" for probability in row))
        0.02 0.87 0.12
        0.11 0.11 0.79
        >>> for row in operators.relaxed_ranks(scores, 2, method="odd_even", tau=0.1):
        ...     print(*(f"{probability:.2f}" for probability in row))
        0.02 0.95 0.03
        0.03 0.03 0.94

    See Also:
        `relaxed_top_k_cross_entropy`, `lapsum_top_k`.

    Source: Grover et al. (2019), "Stochastic optimization of sorting networks via continuous
    relaxations", equation 5; Prillo and Eisenschlos (2020), "SoftSort"; Petersen et al.
    (2021), "Differentiable sorting networks for scalable sorting and ranking supervision", for
    lambda; Petersen et al. (2022), "Monotonic differentiable sorting networks", for the swaps. In
    the package difftopk, tau is 1 / `steepness` or 1 / `inverse_temperature`, and the distribution
    "logistic_phi" is "logistic" with a lambda.
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1])
    relaxation = check_relaxation(method, tau, swap, art_lambda, last.dtype)
    finite = _numerics.finite_scores(last)
    if method in _NETWORKS:
        # The last k lanes; the lane at the end has rank 1.
        lanes = jnp.eye(last.shape[-1], dtype=last.dtype)[::-1][:k]
        log_ranks = _pass_back(finite, _log_of_nonnegative(lanes), relaxation)
    elif method == "soft_sort":
        log_ranks = log_soft_sort(finite, k, relaxation.tau)
    else:
        log_ranks = log_neural_sort(finite, k, relaxation.tau)
    valid = _numerics.nan_where_invalid_vectors(jnp.ones_like(last[..., :1]), last)
    probabilities = jnp.exp(log_ranks) * valid[..., None]
    first = _checks.axis_index(axis, last.ndim)
    return jnp.moveaxis(probabilities, (-2, -1), (first, first + 1))


def compute_relaxed_value(scores: jax.Array, k: int, relaxation: Relaxation) -> jax.Array:
    """The k-th largest of finite scores [..., L] by relaxed ranks, sum_c P_{k,c} s_c, `[...]`.

    Identity: rank k from the top is rank L + 1 - k from the bottom, of the negated scores. Both
    softmaxes compute all ranks up to the one that is asked for, so the smaller one is taken.
    """
    size = scores.shape[-1]
    if relaxation.method in _NETWORKS:
        lane = jnp.eye(size, dtype=scores.dtype)[size - k]
        log_shares = _pass_back(scores, _log_of_nonnegative(lane)[None], relaxation)[..., 0, :]
        return (jnp.exp(log_shares) * scores).sum(axis=-1)
    if 2 * k > size + 1:
        return -compute_relaxed_value(-scores, size + 1 - k, relaxation)
    log_ranks = log_soft_sort if relaxation.method == "soft_sort" else log_neural_sort
    return (jnp.exp(log_ranks(scores, k, relaxation.tau)[..., -1, :]) * scores).sum(axis=-1)


def log_mixture_over_ranks(
    scores: jax.Array, labels: jax.Array, rank_weights: jax.Array, relaxation: Relaxation
) -> jax.Array:
    """The logarithm of sum_j w_j P_{j,y} for finite scores [..., L] and labels [...], `[...]`.

    `rank_weights` [k] are nonnegative. Labels are in [0, L).

    Identity: the sum is linear in P, so a network needs only one column, with the weights at its
    end, instead of k.
    """
    log_weights = _log_of_nonnegative(rank_weights)
    if relaxation.method in _NETWORKS:
        missing = scores.shape[-1] - len(log_weights)
        column = jnp.pad(log_weights, (0, missing), constant_values=_numerics.FLOOR)[::-1]
        mixture = _pass_back(scores, column[None], relaxation)[..., 0, :]
        return _numerics.score_of_label(mixture, labels)
    count = len(log_weights)
    if relaxation.method == "soft_sort":
        log_ranks = log_soft_sort(scores, count, relaxation.tau)
        log_ranks = _numerics.score_of_label(log_ranks, jnp.stack([labels] * count, axis=-1))
    else:
        log_ranks = log_neural_sort(scores, count, relaxation.tau, labels)
    return jax.nn.logsumexp(log_ranks + jnp.broadcast_to(log_weights, log_ranks.shape), axis=-1)


def check_relaxation(
    method: str, tau: ArrayLike, swap: str, art_lambda: ArrayLike, dtype: jnp.dtype
) -> Relaxation:
    exponent = _checks.scalar(art_lambda, "art_lambda", dtype, at_least=0, below=1)
    # Without the trick, the power is left out.
    without = isinstance(art_lambda, int | float) and art_lambda == 0
    return Relaxation(
        _checks.choice(method, "method", _METHODS),
        _checks.scalar(tau, "tau", dtype, above=0),
        _checks.choice(swap, "swap", _swaps.SWAPS),
        None if without else exponent,
    )


@compiled
def _pass_back(scores: jax.Array, log_columns: jax.Array, relaxation: Relaxation) -> jax.Array:
    """The columns [C, L] at the end of the network, at its start: `[..., C, L]`."""
    through = functools.partial(_through_network, relaxation.method, relaxation.swap)
    shared = (log_columns, relaxation.tau, relaxation.art_lambda)
    return _sharding.map_examples(through, scores.ndim - 1, scores, shared=shared)


def _through_network(
    method: str,
    swap: str,
    scores: jax.Array,
    log_columns: jax.Array,
    tau: jax.Array,
    art_lambda: jax.Array | None,
) -> jax.Array:
    comparator = functools.partial(_swaps.gates, swap=swap, tau=tau, art_lambda=art_lambda)
    # The differences to the largest score keep all digits; a comparator only uses differences.
    shifted = scores - jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    lanes = jnp.moveaxis(shifted, -1, 0)
    pass_back = _NETWORKS[method](comparator, lanes)

    def at_start(log_column: jax.Array) -> jax.Array:
        column = log_column.reshape(-1, *[1] * (lanes.ndim - 1))
        # Under shard_map the columns need the type of the lanes.
        return pass_back(jnp.broadcast_to(column, lanes.shape) + jnp.zeros_like(lanes))

    return jnp.moveaxis(jax.vmap(at_start)(log_columns), (0, 1), (-2, -1))


def _log_of_nonnegative(values: jax.Array) -> jax.Array:
    """The logarithm, with a finite value and a derivative of 0 at 0."""
    positive = values > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, values, 1)), _numerics.FLOOR)
