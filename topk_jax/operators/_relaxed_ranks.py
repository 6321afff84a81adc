"""Relaxed ranks: the probability of each class to have rank j, by sorts with derivatives.

A comparator of the odd-even network mixes its two lanes with two gates, the probabilities to keep
and to swap them. The relaxed permutation is the product of these symmetric matrices. So a column of
it is a unit vector that passes the network from its end to its start, and no [L, L] matrix is ever
there. Gates and columns are logarithms: a product of small gates would underflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes
from topk_jax._compilation import compiled
from topk_jax.operators._top_k import move_classes_last, select_largest

__all__ = ["relaxed_ranks"]

_METHODS = ("odd_even", "soft_sort")
_SWAPS = ("cauchy", "logistic")
# If scores are farther apart than this, one of them is the score of a masked class.
_FAR = -0.5 * _classes.FLOOR


class Relaxation(NamedTuple):
    """A method with its parameters, checked."""

    method: str
    tau: jax.Array
    swap: str


class _Gates(NamedTuple):
    """The logarithms of the probabilities that comparators keep or swap their lanes."""

    keep: jax.Array
    swap: jax.Array


# The values on the first and on the second lanes of comparators.
_Pair = tuple[jax.Array, jax.Array]
_Mix = Callable[[_Gates, jax.Array, jax.Array], _Pair]


def relaxed_ranks(
    scores: ArrayLike,
    k: int,
    *,
    method: str,
    tau: ArrayLike,
    swap: str = "cauchy",
    axis: int = -1,
) -> jax.Array:
    r"""The relaxed probabilities that each class has rank j, for the first k ranks.

    With :math:`s_{[1]} \ge s_{[2]} \ge \dots` the method "soft_sort" is

    .. math:: P_{j,c} = \operatorname{softmax}_c \Bigl(\frac{-|s_c - s_{[j]}|}{\tau}\Bigr)

    The method "odd_even" is a sorting network of L layers that compare neighbours. A comparator
    with the scores a and b keeps them, in ascending order, with the probability f((b - a) / tau),
    and leaves f a + (1 - f) b and (1 - f) a + f b in its two lanes. P is the product of these
    mixtures over the network, with

    .. math::
        f(v) = \frac1{1 + e^{-v}} \text{ (logistic)}, \qquad
        f(v) = \frac12 + \frac1\pi \arctan v \text{ (cauchy)}

    As tau goes to 0, P becomes the permutation that sorts the scores. Each rank has probabilities
    that sum to 1; those of a class over all ranks sum to 1 only with the network.

    Args:
        scores, axis: see `topk_jax.operators`.
        k: static number of ranks, from 1 to L.
        method: "soft_sort" or "odd_even", which takes L^2 of memory per example.
        tau: positive scalar temperature, in the units of the scores.
        swap: f of the network: "logistic" or "cauchy".

    Returns:
        An array with `axis` replaced by two axes, the ranks and the classes: `[..., k, L]`. A class
        with a score of -inf has probability 0 for ranks that other classes can have.

    Example:
        >>> scores = jnp.array([1.0, 3.0, 2.0])
        >>> for row in relaxed_ranks(scores, 2, method="soft_sort", tau=0.5):
        ...     print(*(f"{probability:.2f}" for probability in row))
        0.02 0.87 0.12
        0.11 0.11 0.79

    Source: Prillo and Eisenschlos (2020), "SoftSort"; Petersen et al. (2021), "Differentiable
    sorting networks for scalable sorting and ranking supervision"; Petersen et al. (2022),
    "Monotonic differentiable sorting networks", for the swaps. In the package difftopk, tau is
    1 / `steepness` or 1 / `inverse_temperature`.
    """
    last = move_classes_last(scores, axis)
    k = _checks.rank(k, last.shape[-1])
    relaxation = check_relaxation(method, tau, swap, last.dtype)
    finite = _classes.finite_scores(last)
    if method == "odd_even":
        # The last k lanes; the lane at the end has rank 1.
        lanes = jnp.eye(last.shape[-1], dtype=last.dtype)[::-1][:k]
        log_ranks = _pass_back(finite, _log_of_nonnegative(lanes), relaxation)
    else:
        log_ranks = _log_soft_sort(finite, k, relaxation.tau)
    valid = _classes.nan_where_invalid_scores(jnp.ones_like(last[..., :1]), last)
    probabilities = jnp.exp(log_ranks) * valid[..., None]
    first = _checks.axis_index(axis, last.ndim)
    return jnp.moveaxis(probabilities, (-2, -1), (first, first + 1))


def check_relaxation(method: str, tau: ArrayLike, swap: str, dtype: jnp.dtype) -> Relaxation:
    """The arguments, or raises."""
    return Relaxation(
        _checks.choice(method, "method", _METHODS),
        _checks.scalar(tau, "tau", dtype, above=0),
        _checks.choice(swap, "swap", _SWAPS),
    )


def log_mixture_over_ranks(
    scores: jax.Array, labels: jax.Array, rank_weights: jax.Array, relaxation: Relaxation
) -> jax.Array:
    """The logarithm of sum_j w_j P_{j,y} for finite scores [..., L] and labels [...], `[...]`.

    `rank_weights` [k] are nonnegative. The sum is linear in P, so the network needs only one
    column, with the weights at its end.
    """
    log_weights = _log_of_nonnegative(rank_weights)
    count = len(log_weights)
    if relaxation.method == "odd_even":
        missing = scores.shape[-1] - count
        column = jnp.pad(log_weights, (0, missing), constant_values=_classes.FLOOR)[::-1]
        mixture = _pass_back(scores, column[None], relaxation)[..., 0, :]
        return _classes.score_of_label(mixture, labels)
    log_ranks = _log_soft_sort(scores, count, relaxation.tau)
    log_ranks = _classes.score_of_label(log_ranks, jnp.stack([labels] * count, axis=-1))
    return jax.nn.logsumexp(log_ranks + jnp.broadcast_to(log_weights, log_ranks.shape), axis=-1)


def _log_soft_sort(scores: jax.Array, k: int, tau: jax.Array) -> jax.Array:
    """The logarithms of the relaxed ranks of finite scores [..., L], `[..., k, L]`."""
    sorted_scores, _ = select_largest(scores, k)
    gaps = scores[..., None, :] - sorted_scores[..., :, None]
    # Not `abs`, whose derivative at 0 is 1: slopes of equal scores would depend on their order.
    return jax.nn.log_softmax(-gaps * jnp.sign(gaps) / tau, axis=-1)


@compiled
def _pass_back(scores: jax.Array, log_columns: jax.Array, relaxation: Relaxation) -> jax.Array:
    """The columns [C, L] at the end of the network, at its start: `[..., C, L]`.

    Odd-even transposition: layers that compare lanes 0 and 1, ..., then lanes 1 and 2, ... Even and
    odd lanes are apart, so that each layer is a few array operations.
    """
    swap, tau, num_lanes = relaxation.swap, relaxation.tau, scores.shape[-1]
    # The differences to the largest score keep all digits; a comparator only uses differences.
    shifted = scores - jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    lanes = jnp.moveaxis(shifted, -1, 0)
    count_from_1 = (num_lanes - 1) // 2

    def compare_from_0(pair: _Pair) -> tuple[_Pair, _Gates]:
        gates = _gates(pair[1] - pair[0][: num_lanes // 2], swap, tau)
        return _apply_from_0(_mix, gates, pair), gates

    def two_layers(pair: _Pair, _: None) -> tuple[_Pair, tuple[_Gates, _Gates]]:
        pair, from_0 = compare_from_0(pair)
        from_1 = _gates(pair[0][1:] - pair[1][:count_from_1], swap, tau)
        return _apply_from_1(_mix, from_1, pair), (from_0, from_1)

    def two_layers_back(columns: _Pair, gates: tuple[_Gates, _Gates]) -> tuple[_Pair, None]:
        from_0, from_1 = gates
        return _apply_from_0(_log_mix, from_0, _apply_from_1(_log_mix, from_1, columns)), None

    pair, pairs_of_gates = jax.lax.scan(
        two_layers, (lanes[0::2], lanes[1::2]), length=num_lanes // 2
    )
    last_gates = compare_from_0(pair)[1] if num_lanes % 2 else None

    def at_start(log_column: jax.Array) -> jax.Array:
        # Under shard_map the columns need the type of the lanes.
        column = log_column.reshape(-1, *[1] * (lanes.ndim - 1)) + jnp.zeros_like(lanes)
        columns = (column[0::2], column[1::2])
        if last_gates is not None:
            columns = _apply_from_0(_log_mix, last_gates, columns)
        (evens, odds), _ = jax.lax.scan(two_layers_back, columns, pairs_of_gates, reverse=True)
        pairs = jnp.stack([evens[: len(odds)], odds], axis=1)
        # Sizes in full, because an empty batch leaves none to infer.
        pairs = pairs.reshape(2 * len(odds), *lanes.shape[1:])
        return jnp.concatenate([pairs, evens[len(odds) :]])

    return jnp.moveaxis(jax.vmap(at_start)(log_columns), (0, 1), (-2, -1))


def _apply_from_0(mix: _Mix, gates: _Gates, pair: _Pair) -> _Pair:
    """The lanes after comparators of lanes 0 and 1, 2 and 3, ...; an even one may be left over."""
    evens, odds = pair
    first, second = mix(gates, evens[: len(odds)], odds)
    return jnp.concatenate([first, evens[len(odds) :]]), second


def _apply_from_1(mix: _Mix, gates: _Gates, pair: _Pair) -> _Pair:
    """The lanes after comparators of lanes 1 and 2, ...; lane 0 and maybe an odd one are left."""
    evens, odds = pair
    count = len(evens) - 1
    first, second = mix(gates, odds[:count], evens[1:])
    return jnp.concatenate([evens[:1], second]), jnp.concatenate([first, odds[count:]])


def _gates(gap: jax.Array, swap: str, tau: jax.Array) -> _Gates:
    """The gates of comparators whose second score exceeds the first by `gap`.

    Those with one masked class are certain: the heavy tails of a Cauchy swap would let a score of
    -1e30 shift the scores that it is compared with.
    """
    is_far = jnp.abs(gap) > _FAR
    scaled = jnp.where(is_far, 1.0, gap) / tau

    def log_probability(gap: jax.Array) -> jax.Array:
        if swap == "logistic":
            return -jax.nn.softplus(-gap)
        # 1/2 + arctan(v) / pi, with the digits of its tail.
        return jnp.log(jnp.arctan2(jnp.ones_like(gap), -gap) / math.pi)

    keep, swapped = log_probability(scaled), log_probability(-scaled)
    certain = jnp.where(gap > 0, 0.0, _classes.FLOOR).astype(gap.dtype)
    reverse = _classes.FLOOR - certain
    return _Gates(jnp.where(is_far, certain, keep), jnp.where(is_far, reverse, swapped))


def _mix(gates: _Gates, first: jax.Array, second: jax.Array) -> _Pair:
    """The mixed scores. Only the smaller probability times the gap leaves equal scores equal."""
    keeps = gates.keep > gates.swap
    moved = jnp.exp(jnp.where(keeps, gates.swap, gates.keep)) * (second - first)
    low, high = first + moved, second - moved
    return jnp.where(keeps, low, high), jnp.where(keeps, high, low)


def _log_mix(gates: _Gates, first: jax.Array, second: jax.Array) -> _Pair:
    return (
        jnp.logaddexp(gates.keep + first, gates.swap + second),
        jnp.logaddexp(gates.swap + first, gates.keep + second),
    )


def _log_of_nonnegative(values: jax.Array) -> jax.Array:
    """The logarithm, with a finite value and a derivative of 0 at 0."""
    positive = values > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, values, 1)), _classes.FLOOR)
