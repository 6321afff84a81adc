"""Probabilities to test sets and thresholds with."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

TINY = np.finfo(np.float32).tiny
# Numbers that are hostile to thresholds: zeros of both signs, denormal and nearly denormal ones,
# neighbours whose midpoint rounds to the lower or to the upper one. The values are few, so many
# tie.
PALETTE = np.array(
    [0.0, -0.0, 1e-45, 1e-40, TINY, np.nextafter(TINY, np.float32(1)), 1.5 * TINY, 0.125]
    + [np.nextafter(np.float32(0.125), np.float32(side)) for side in (0, 1)]
    + [0.25, 0.5, 1.0],
    np.float32,
)
SHAPES = [(1, 1), (1, 4), (5, 3), (3, 2, 5)]
properties = settings(max_examples=60, deadline=None, derandomize=True, database=None)


@st.composite
def probability_arrays(draw):
    """Arrays of few shapes, so that few programs are compiled, and of hostile values."""
    shape = draw(st.sampled_from(SHAPES))
    size = math.prod(shape)
    chosen = draw(st.lists(st.sampled_from(list(PALETTE)), min_size=size, max_size=size))
    return np.array(chosen, np.float32).reshape(shape)


@st.composite
def dyadic_probabilities(draw):
    """Examples of multiples of 1/64, of exact sums; some add up to less than 1."""
    cuts = draw(
        st.lists(st.lists(st.integers(0, 64), min_size=6, max_size=6), min_size=4, max_size=4)
    )
    edges = np.sort(np.array(cuts), axis=-1)
    return np.diff(edges, axis=-1, prepend=0).astype(np.float32) / 64


def with_mean_sizes():
    """Such arrays with a mean set size from 1 to L, an integer or not."""
    return st.tuples(probability_arrays(), st.integers(0, 8)).map(
        lambda drawn: (drawn[0], 1 + (drawn[0].shape[-1] - 1) * drawn[1] / 8)
    )


def softmax_of(rng, *shape, scale=3.0):
    return jax.nn.softmax(jnp.asarray(rng.normal(scale=scale, size=shape), jnp.float32), axis=-1)


def as_float64(values):
    return np.asarray(values, np.float64)


def distributions(rng, *shape):
    weights = rng.gamma(0.5, size=shape)
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)
