"""The expected k-th largest score: against references, its identities, limits and bounds."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom, norm

from tests import reference
from tests.compilation import for_users
from tests.rows import rows
from topk_jax import operators
from topk_jax.operators import _expected

EPS = float(np.finfo(np.float32).eps)
# What is promised at the default number of nodes, in units of epsilon and as chances.
PROMISED = 1e-4
# From one score that leads far to scores that are as good as equal.
NOISE = (1e-3, 0.03, 0.3, 1.0, 3.0, 30.0, 1e3)


@functools.partial(for_users, static_argnums=1, static_argnames=("num_nodes", "axis"))
def value_and_gradients(scores, k, epsilon=1.0, *, num_nodes=None, axis=-1):
    """The values, and the gradients of their sum in the scores and in epsilon."""

    def function(scores, epsilon):
        return operators.expected_top_k_value(
            scores, k, epsilon=epsilon, num_nodes=num_nodes, axis=axis
        )

    value, vjp = jax.vjp(function, scores, jnp.asarray(epsilon, scores.dtype))
    return value, *vjp(jnp.ones_like(value))


def total(scores, k, epsilon, **options):
    return operators.expected_top_k_value(scores, k, epsilon=epsilon, **options).sum()


def assert_close(actual, expected, tolerance):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def assert_is(value, gradient, expected, expected_gradient, epsilon, tolerance=PROMISED):
    # The k-th largest is added in float32 to the distance from it.
    assert_close(value, expected, tolerance * epsilon + 2 * EPS * np.abs(expected).max())
    assert_close(gradient, expected_gradient, tolerance)
    assert (np.asarray(gradient) >= 0).all()
    # It is normalised in float32; up to 100,000 parts are added up pairwise.
    assert_close(np.asarray(gradient, np.float64).sum(axis=-1), 1, 16 * EPS)


# All multiplied out (48 classes and fewer for k = 6), or the most binned; low and high ranks.
SIZES = [(1, 1), (2, 1), (2, 2), (7, 7), (30, 1), (40, 20), (100, 6), (100, 60), (1081, 6)]


@pytest.mark.parametrize(("size", "k"), SIZES)
def test_value_and_gradient_are_the_reference(rng, size, k):
    scores = rng.normal(size=size).astype(np.float32)
    for epsilon in NOISE if size < 1000 else NOISE[1::3]:
        value, gradient, _ = value_and_gradients(jnp.asarray(scores), k, epsilon)
        expected = reference.expected_top_k_value(scores, k, epsilon=epsilon)
        expected_gradient = reference.expected_top_k_value_gradient(scores, k, epsilon=epsilon)
        assert_is(value, gradient, expected, expected_gradient, epsilon)


def of_groups(levels, counts, k, spacing=0.005):
    """Value and chances for groups of equal scores and unit noise, from binomial distributions.

    The reference for numbers of classes and ranks that are too large for one class after another.
    """
    nodes = np.arange(min(levels) - 8.0, max(levels) + 8.0, spacing)

    def fewer(counts):
        polynomial = np.zeros((len(nodes), k))
        polynomial[:, 0] = 1.0
        for level, count in zip(levels, counts, strict=True):
            chances = binom.pmf(np.arange(k), count, norm.sf(nodes - level)[:, None])
            product = [(polynomial[:, : j + 1] * chances[:, j::-1]).sum(axis=-1) for j in range(k)]
            polynomial = np.stack(product, axis=-1)
        return polynomial

    value = nodes[0] + spacing * (1 - fewer(counts).sum(axis=-1)).sum() - spacing / 2
    gradient = [
        spacing
        * (norm.pdf(nodes - level) * fewer([*counts[:i], count - 1, *counts[i + 1 :]])[:, -1]).sum()
        for i, (level, count) in enumerate(zip(levels, counts, strict=True))
    ]
    return value, np.array(gradient)


def groups(size, k):
    """Levels and counts: a spread, and the hardest, a fast transition in a wide interval."""
    yield [4.3, 2.11, 1.37, -0.77], [max(1, k // 2), k, 3 * k, size - 4 * k - max(1, k // 2)]
    yield [0.0], [size]
    yield [3.51, 0.0], [k, size - k]
    if k > 1:
        yield [20.0, 3.51, 0.0], [k - 1, 1, size - k]


@pytest.mark.parametrize(
    ("size", "k", "num_nodes"),
    rows(
        [(1081, 6, None), (100_000, 1, None), (100_000, 6, None), (100_000, 6, 80)],
        [(1081, 101, None)],
    ),
)
def test_many_classes_in_groups(size, k, num_nodes):
    # With many nodes, what is left is the binning, 2e-6, and the rounding of float32.
    tolerance = 5e-6 if num_nodes else PROMISED
    for levels, counts in groups(size, k):
        scores = jnp.asarray(np.repeat(levels, counts), jnp.float32)[::-1]
        value, gradient, _ = value_and_gradients(scores, k, num_nodes=num_nodes)
        expected, chances = of_groups(levels, counts, k)
        expected_gradient = np.repeat(chances, counts)[::-1]
        assert_is(value, gradient, expected, expected_gradient, 1.0, tolerance)


@pytest.mark.parametrize(("size", "k"), [(5, 2), (5, 5), (60, 1), (60, 60)])
def test_no_noise_is_the_hard_operator(rng, size, k):
    scores = jnp.asarray(rng.normal(size=(4, size)), jnp.float32)
    # Ties: the slope of one of them.
    scores = scores.at[:2].set(jnp.round(scores[:2]))
    for epsilon in (0.0, 1e-45):
        value, gradient, slope = value_and_gradients(scores, k, epsilon)
        np.testing.assert_array_equal(value, reference.top_k_value(scores, k))
        marks = reference.top_k_value_gradient(np.asarray(scores), k)
        np.testing.assert_array_equal(gradient, marks)
        assert np.isfinite(slope)


def test_slope_in_epsilon_without_noise():
    """Two equal scores differ by the noise as soon as there is some; single ones do not move."""
    scores = jnp.array([[1.0, 0.0, 1.0], [1.0, 0.0, -1.0]])
    slope = jax.grad(lambda epsilon, row: total(row, 1, epsilon))
    slopes = jax.jit(jax.vmap(slope, (None, 0)))(0.0, scores)
    assert_close(slopes, [1 / math.sqrt(math.pi), 0], PROMISED)


# Not binned at a low rank, binned at a high one, and by a contour.
CURVED = rows([(6, 2), (40, 39)], [(80, 36)])


@pytest.mark.parametrize(("size", "k"), CURVED)
def test_derivatives_by_differences_in_float64(rng, size, k):
    binned = size == 40
    with jax.enable_x64(True):
        row, direction = rng.normal(size=size), rng.normal(size=size)
        nodes = {"num_nodes": 100}
        value, gradient, slope = value_and_gradients(row, k, 0.6, **nodes)
        assert value.dtype == gradient.dtype == slope.dtype == jnp.float64
        step = 1e-5

        def at(offset=0.0, epsilon=0.6):
            return value_and_gradients(row + offset * direction, k, epsilon, **nodes)

        def slope_of(part, **above):
            below = {name: -number for name, number in above.items()}
            return (at(**above)[part] - at(**below)[part]) / (2 * step)

        # Differences have an error of order step^2 = 1e-10 and 1e-16 / step; binning one of 2e-6.
        tolerance = 1e-5 if binned else 1e-8
        along = slope_of(0, offset=step)
        in_epsilon = (at(epsilon=0.6 + step)[0] - at(epsilon=0.6 - step)[0]) / (2 * step)
        assert_close(gradient @ direction, along, tolerance)
        assert_close(slope, in_epsilon, tolerance)
        function = functools.partial(total, k=k, **nodes)

        @jax.jit
        def tangent_of(row, direction):
            def at_noise(row, epsilon):
                return function(row, epsilon=epsilon)

            primals, tangents = (row, jnp.asarray(0.6)), (direction, jnp.asarray(2.0))
            return jax.jvp(at_noise, primals, tangents)[1]

        tangent = tangent_of(row, direction)
        assert_close(tangent, along + 2 * in_epsilon, 3 * tolerance)
        curvature = slope_of(1, offset=step)
        expected = (
            reference.expected_top_k_value_gradient(row + step * direction, k, epsilon=0.6)
            - reference.expected_top_k_value_gradient(row - step * direction, k, epsilon=0.6)
        ) / (2 * step)
        assert_close(curvature, expected, tolerance)
        hessian = jax.jit(jax.hessian(lambda row: function(row, epsilon=0.6)))(row)
        assert_close(hessian @ direction, curvature, tolerance)


# Few sizes and one shape, so that the tests of broken and masked classes share what is compiled.
BROKEN = rows([(5, 4), (60, 40)], [(5, 2), (60, 2)])


@pytest.mark.parametrize(("size", "k"), BROKEN)
def test_masked_classes_are_harmless(rng, size, k):
    scores = rng.normal(size=(3, size)).astype(np.float32)
    for num_masked in (1, size - k):
        masked = rng.permutation(size)[:num_masked]
        hurt = scores.copy()
        hurt[:, masked] = -np.inf
        value, gradient, slope = value_and_gradients(jnp.asarray(hurt), k, 0.5)
        assert (np.asarray(gradient)[:, masked] == 0).all()
        assert np.isfinite(slope).all()
        for row, one, other in zip(scores, value, gradient, strict=True):
            kept = np.delete(row, masked)
            expected = reference.expected_top_k_value(kept, k, epsilon=0.5)
            assert_close(one, expected, 0.5 * PROMISED)
            expected = reference.expected_top_k_value_gradient(kept, k, epsilon=0.5)
            assert_close(np.delete(other, masked), expected, PROMISED)


@pytest.mark.parametrize(("size", "k"), BROKEN)
def test_too_few_classes_left(size, k):
    scores = jnp.full((3, size), -jnp.inf).at[0, : k - 1].set(1.0).at[1, :k].set(1.0)
    scores = scores.at[2, 1].set(jnp.nan)
    value, gradient, _ = value_and_gradients(scores, k, 0.5)
    assert value[0] == -jnp.inf
    np.testing.assert_array_equal(gradient[0], 0)
    assert np.isnan(value[2])
    assert np.isnan(gradient[2]).all()
    assert np.isfinite(value[1])
    # All equal and all needed: each is k-th with the same chance.
    assert_close(gradient[1, :k], 1 / k, PROMISED)


@pytest.mark.parametrize(("size", "k"), BROKEN)
def test_nan_spoils_its_own_example_alone(rng, size, k):
    clean = jnp.asarray(rng.normal(size=(3, size)), jnp.float32).at[2, 1].set(-jnp.inf)
    for position in (0, size - 1):
        hurt = clean.at[1, position].set(jnp.nan)
        broken, whole = value_and_gradients(hurt, k, 0.5), value_and_gradients(clean, k, 0.5)
        for one, other in zip(broken[:2], whole[:2], strict=True):
            assert np.isnan(one[1]).all()
            np.testing.assert_array_equal(one[::2], other[::2])
        assert jnp.isnan(broken[2])


@pytest.mark.parametrize(("size", "k"), [(5, 2), (60, 2)])
def test_scale_and_shift(rng, size, k):
    # Multiples of 1/256, so that the shifted and the scaled scores are exact.
    scores = jnp.round(jnp.asarray(rng.normal(size=size), jnp.float32) * 256) / 256
    value, gradient, slope = value_and_gradients(scores, k, 0.5)
    for shift in (1e4, -1e4):
        shifted = value_and_gradients(scores + shift, k, 0.5)
        # float32 has steps of 1e-3 at 1e4.
        assert_close(shifted[0] - shift, value, 1e-3)
        assert_close(shifted[1], gradient, 8 * EPS)
    for scale in (2.0**-20, 2.0**12):
        scaled = value_and_gradients(scale * scores, k, 0.5 * scale)
        assert_close(scaled[0] / scale, value, 8 * EPS)
        assert_close(scaled[1], gradient, 8 * EPS)
        assert_close(scaled[2], slope, 32 * EPS)


# Not binned, binned, and by a contour.
@pytest.mark.parametrize(("size", "k"), [(20, 6), (60, 6), (80, 36)])
def test_one_node_at_a_time(rng, monkeypatch, size, k):
    scores = jnp.asarray(rng.normal(size=(3, size)), jnp.float32)
    at_once = value_and_gradients(scores, k, 0.5)
    monkeypatch.setattr(_expected, "_BYTES_AT_ONCE", 0)
    one_by_one = jax.jit(lambda scores: value_and_gradients.__wrapped__(scores, k, 0.5))(scores)
    for one, other in zip(one_by_one, at_once, strict=True):
        # The slope adds up the classes and the batch.
        assert_close(one, other, 64 * EPS)


# All multiplied out, a high rank, most as symmetric functions, one coefficient.
@pytest.mark.parametrize(("size", "k"), [(7, 3), (40, 39), (100, 6), (100, 1)])
def test_accelerators_find_the_same(rng, monkeypatch, size, k):
    scores = np.array([0.03, 0.3, 1.0, 30.0])[:, None] * rng.normal(size=(4, size))
    scores = scores.astype(np.float32)
    scores[0, : size // 3], scores[3, 2] = -0.0, -np.inf
    expected = value_and_gradients(jnp.asarray(scores), k, 0.5)
    monkeypatch.setattr(
        jax.lax, "platform_dependent", lambda *arrays, default, **_: default(*arrays)
    )
    found = jax.jit(lambda scores: value_and_gradients.__wrapped__(scores, k, 0.5))(scores)
    # What is binned has an error of 2e-6; the slope adds up the batch.
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_twice_the_nodes_square_the_error(rng):
    with jax.enable_x64(True):
        row = rng.normal(size=12)
        expected = reference.expected_top_k_value(row, 3, epsilon=0.7)
        errors = [
            abs(value_and_gradients(row, 3, 0.7, num_nodes=num_nodes)[0] - expected)
            for num_nodes in (9, 18, 36, 72)
        ]
        assert (np.array(errors) < [1e-2, 1e-4, 1e-8, 1e-12]).all()
