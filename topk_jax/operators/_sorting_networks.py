"""Differentiable sorting networks: every comparator swaps its two lanes with a probability.

The lanes are along axis 0; the scores leave the network in ascending order. A comparator mixes its
two lanes with two gates, the probabilities to keep and to swap them. The relaxed permutation is the
product of these symmetric matrices. So a column of it is a unit vector that passes the network from
its end to its start, with the gates of each comparator, and the [L, L] matrix is never there.

Hazard: a product of small gates underflows, and its logarithm then does not have a derivative.
Choice: gates and columns are logarithms. Cost: a log-sum-exp in place of a sum of products.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import _numerics


class Gates(NamedTuple):
    """The logarithms of the probabilities that comparators keep or swap their lanes."""

    keep: jax.Array
    swap: jax.Array


# Maps the gaps of comparators, the second score minus the first, to their gates.
Comparator = Callable[[jax.Array], Gates]
# Maps the logarithms [n, ...] of a column at the end of a network to the logarithms at its start.
PassBack = Callable[[jax.Array], jax.Array]
# Maps gates and the values on the first and second lanes of comparators to the mixed values.
Mix = Callable[[Gates, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def odd_even(comparator: Comparator, scores: jax.Array) -> PassBack:
    """Odd-even transposition of scores [n, ...]: n layers that compare neighbours.

    The first layer compares lanes 0 and 1, 2 and 3, and so on; the second lanes 1 and 2, 3 and 4.
    Even and odd lanes are apart, so that each layer is a few array operations.
    """
    num_lanes = len(scores)

    def two_layers(
        lanes: tuple[jax.Array, jax.Array], _: None
    ) -> tuple[tuple[jax.Array, jax.Array], tuple[Gates, Gates]]:
        lanes, from_0 = _compare_from_0(comparator, *lanes)
        lanes, from_1 = _compare_from_1(comparator, *lanes)
        return lanes, (from_0, from_1)

    lanes = (scores[0::2], scores[1::2])
    lanes, pairs_of_gates = jax.lax.scan(two_layers, lanes, length=num_lanes // 2)
    last_gates = _compare_from_0(comparator, *lanes)[1] if num_lanes % 2 == 1 else None

    def two_layers_back(
        columns: tuple[jax.Array, jax.Array], gates: tuple[Gates, Gates]
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        from_0, from_1 = gates
        columns = _apply_from_1(_log_mix, from_1, *columns)
        return _apply_from_0(_log_mix, from_0, *columns), None

    def pass_back(column: jax.Array) -> jax.Array:
        columns = (column[0::2], column[1::2])
        if last_gates is not None:
            columns = _apply_from_0(_log_mix, last_gates, *columns)
        (evens, odds), _ = jax.lax.scan(two_layers_back, columns, pairs_of_gates, reverse=True)
        pairs = jnp.stack([evens[: len(odds)], odds], axis=1)
        # Sizes in full, because an empty batch leaves none to infer.
        pairs = pairs.reshape(2 * len(odds), *column.shape[1:])
        return jnp.concatenate([pairs, evens[len(odds) :]])

    return pass_back


def _compare_from_0(
    comparator: Comparator, evens: jax.Array, odds: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], Gates]:
    """Compares lanes 0 and 1, 2 and 3, and so on; an even lane may be left over."""
    gates = comparator(odds - evens[: len(odds)])
    return _apply_from_0(_mix, gates, evens, odds), gates


def _compare_from_1(
    comparator: Comparator, evens: jax.Array, odds: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], Gates]:
    """Compares lanes 1 and 2, 3 and 4, and so on; lane 0 and maybe an odd lane are left over."""
    gates = comparator(evens[1:] - odds[: len(evens) - 1])
    return _apply_from_1(_mix, gates, evens, odds), gates


def _apply_from_0(
    mix: Mix, gates: Gates, evens: jax.Array, odds: jax.Array
) -> tuple[jax.Array, jax.Array]:
    first, second = mix(gates, evens[: len(odds)], odds)
    return jnp.concatenate([first, evens[len(odds) :]]), second


def _apply_from_1(
    mix: Mix, gates: Gates, evens: jax.Array, odds: jax.Array
) -> tuple[jax.Array, jax.Array]:
    count = len(evens) - 1
    first, second = mix(gates, odds[:count], evens[1:])
    odds = jnp.concatenate([first, odds[count:]])
    return jnp.concatenate([evens[:1], second]), odds


def bitonic(comparator: Comparator, scores: jax.Array) -> PassBack:
    """Batcher's bitonic network of scores [n, ...]: b (b + 1) / 2 layers for 2^b lanes.

    For other n the first lanes of the next power of two are missing, with the comparators that
    would have one of them. They stand for scores below all others.
    """
    num_lanes = len(scores)
    depth = (num_lanes - 1).bit_length()
    num_missing = 2**depth - num_lanes
    lanes = _pad_front(scores, num_missing, 0)
    certain = Gates(jnp.zeros((), scores.dtype), jnp.full((), _numerics.FLOOR, scores.dtype))
    layers = []
    for block in range(depth):
        for distance in (2**bit for bit in range(block, -1, -1)):
            first, second = _at_distance(lanes, distance)
            gates = comparator(second - first)
            lane = np.arange(2**depth).reshape(-1, 2, distance)[:, 0]
            lane = np.expand_dims(lane, tuple(range(2, first.ndim)))
            # Every other block of this size descends, so that two of them are a bitonic sequence.
            gates = _choose((lane >> (block + 1)) % 2 == 1, Gates(gates.swap, gates.keep), gates)
            gates = _choose(lane < num_missing, certain, gates)
            layers.append((distance, gates))
            lanes = jnp.stack(_mix(gates, first, second), axis=1).reshape(lanes.shape)

    def pass_back(column: jax.Array) -> jax.Array:
        column = _pad_front(column, num_missing, _numerics.FLOOR)
        for distance, gates in reversed(layers):
            mixed = _log_mix(gates, *_at_distance(column, distance))
            column = jnp.stack(mixed, axis=1).reshape(column.shape)
        return column[num_missing:]

    return pass_back


def _at_distance(lanes: jax.Array, distance: int) -> tuple[jax.Array, jax.Array]:
    """The first and second lanes of the comparators of a layer, `[blocks, distance, ...]` both."""
    blocks = lanes.reshape(len(lanes) // (2 * distance), 2, distance, *lanes.shape[1:])
    return blocks[:, 0], blocks[:, 1]


def _choose(mask: np.ndarray, ones: Gates, others: Gates) -> Gates:
    if not mask.any():
        return others
    return Gates(*(jnp.where(mask, one, other) for one, other in zip(ones, others, strict=True)))


def _pad_front(lanes: jax.Array, count: int, value: float) -> jax.Array:
    return jnp.pad(lanes, [(count, 0)] + [(0, 0)] * (lanes.ndim - 1), constant_values=value)


def _mix(gates: Gates, first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    # Identity: keep a + swap b = a + swap (b - a) = b - keep (b - a). Hazard: rounded products give
    # equal scores of 1e4 a gap of 1e-3, and a + swap (b - a) is not exactly b if swap is 1. Choice:
    # the smaller probability, times the gap. Cost: three selections.
    keeps = gates.keep > gates.swap
    moved = jnp.exp(jnp.where(keeps, gates.swap, gates.keep)) * (second - first)
    low, high = first + moved, second - moved
    return jnp.where(keeps, low, high), jnp.where(keeps, high, low)


def _log_mix(gates: Gates, first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    return (
        jnp.logaddexp(gates.keep + first, gates.swap + second),
        jnp.logaddexp(gates.swap + first, gates.keep + second),
    )
