"""The perturbed operators: given noise against the reference, drawn noise in the mean."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from tests import reference
from tests.compilation import for_users
from topk_jax import operators
from topk_jax.operators import _perturbed_selection, _top_k

EPS = float(np.finfo(np.float32).eps)
SUM, VALUE = "perturbed_top_k_sum", "perturbed_top_k_value"
both = pytest.mark.parametrize("name", [SUM, VALUE])


@functools.partial(for_users, static_argnums=0, static_argnames=("k", "num_samples", "axis"))
def value_and_gradients(name, key, scores, *, k=2, epsilon=0.5, num_samples=4, noise=None, axis=-1):
    """The values, and the gradients of their sum in the scores and in epsilon."""

    def function(scores, epsilon):
        return getattr(operators, name)(
            key, scores, k, epsilon=epsilon, num_samples=num_samples, noise=noise, axis=axis
        )

    value, vjp = jax.vjp(function, scores, jnp.asarray(epsilon, jnp.float32))
    return value, *vjp(jnp.ones_like(value))


def expected_with_noise(name, scores, k, epsilon, noise, axis=-1):
    value = getattr(reference, name)(
        None, scores, k, epsilon=epsilon, num_samples=len(noise), noise=noise, axis=axis
    )
    gradient = getattr(reference, f"{name}_gradient")(
        scores, k, epsilon=epsilon, noise=noise, axis=axis
    )
    return value, gradient


@both
@pytest.mark.parametrize(
    ("shape", "axis", "k"), [((6,), -1, 1), ((3, 4, 5), 1, 4), ((2, 6, 3), 1, 3), ((5, 4), 0, 2)]
)
def test_given_noise_is_the_reference(name, rng, shape, axis, k):
    scores = jnp.asarray(rng.normal(size=shape), jnp.float32)
    noise = jnp.asarray(rng.normal(size=(4, *shape)), jnp.float32)
    value, gradient, _ = value_and_gradients(name, None, scores, k=k, noise=noise, axis=axis)
    expected, expected_gradient = expected_with_noise(name, scores, k, 0.5, noise, axis)
    # A product, k + 4 additions of numbers of order 5.
    np.testing.assert_allclose(value, expected, rtol=0, atol=5 * (k + 5) * EPS)
    # Quarters are exact.
    np.testing.assert_array_equal(gradient, expected_gradient)


# Each way to go through the samples with a way to select: how many numbers are perturbed at once;
# the longest row that descent searches and its highest rank, the highest rank that is selected, the
# length for each rank from which it always is, and from which it is selected in chunks.
PATHS = {
    "all at once, descent": (2**30, 2**30, 2**30, 0, 2**30, 2**30),
    "a row at a time, selection": (1, 0, 0, 2**30, 2**30, 2**30),
    # There must be at least one chunk for each rank.
    "four rows, chunks": (250, 0, 0, 2**30, 2**30, _top_k._CHUNK),
    "four rows, bisection": (250, 0, 0, 0, 2**30, 2**30),
}


def choose_path(monkeypatch, name):
    at_once, longest_row, highest_descent, highest_rank, selected, chunked = PATHS[name]
    monkeypatch.setattr(_perturbed_selection, "_BLOCK_SIZE_ON_CPU", at_once)
    monkeypatch.setattr(_top_k, "_LONGEST_SHORT_ROW", longest_row)
    monkeypatch.setattr(_top_k, "_HIGHEST_DESCENT", highest_descent)
    monkeypatch.setattr(_top_k, "_HIGHEST_SELECTED_RANK", highest_rank)
    monkeypatch.setattr(_top_k, "_SELECTED_LENGTH_PER_RANK", selected)
    monkeypatch.setattr(_top_k, "_CHUNKED_LENGTH_PER_RANK", chunked)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("name", "k"), [(SUM, 4), (VALUE, 1), (VALUE, 37), (VALUE, 60)])
def test_every_path_is_the_reference(name, k, path, rng, monkeypatch):
    choose_path(monkeypatch, path)
    scores = rng.normal(size=(3, 60)).astype(np.float32)
    # Ties, and masked classes.
    scores[1] = scores[1].round()
    scores[2, ::30] = -np.inf
    noise = rng.normal(size=(5, 3, 60)).astype(np.float32)

    def total(scores):
        values = getattr(operators, name)(None, scores, k, epsilon=0.7, num_samples=5, noise=noise)
        return values.sum(), values

    gradient, values = jax.jit(jax.grad(total, has_aux=True))(scores)
    expected, expected_gradient = expected_with_noise(name, scores, k, 0.7, noise)
    # Sums of up to 60 float32 numbers of order one; counts divided by 5.
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-6)


def test_a_key_draws_the_same_noise_on_every_path(key, rng, monkeypatch):
    scores = rng.normal(size=(3, 60)).astype(np.float32)
    values = []
    for path in PATHS:
        choose_path(monkeypatch, path)

        # A new function each time, or what was compiled for the path before would be taken.
        def value(key, scores):
            return operators.perturbed_top_k_value(key, scores, 7, epsilon=0.7, num_samples=4)

        values.append(jax.jit(value)(key, scores))
    for value in values[1:]:
        # The mean of the same four numbers, perhaps added up in another order.
        np.testing.assert_allclose(value, values[0], rtol=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_equal_scores_rank_by_index(path, monkeypatch):
    choose_path(monkeypatch, path)
    scores = jnp.array(
        [
            [1.0, 2.0, 1.0, 2.0, 1.0, -jnp.inf],
            [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            [-jnp.inf, 1.0, -jnp.inf, 2.0, 1.0, 3.0],
        ]
    )
    order = np.argsort(-np.asarray(scores), axis=-1, kind="stable")
    for k in range(1, 7):
        value, index = _top_k.select_kth(scores, k)
        np.testing.assert_array_equal(index[:, 0], order[:, k - 1])
        np.testing.assert_array_equal(value, np.take_along_axis(np.asarray(scores), index, axis=-1))


@both
def test_no_noise_is_the_hard_operator(name, key, rng):
    scores = jnp.asarray(rng.normal(size=(4, 6)), jnp.float32).round(1)
    value, gradient, _ = value_and_gradients(name, key, scores, k=3, epsilon=0.0)
    hard = name.removeprefix("perturbed_")
    expected, vjp = jax.vjp(lambda scores: getattr(operators, hard)(scores, 3), scores)
    # Four equal numbers of order 5 are added up, which may round.
    np.testing.assert_allclose(value, expected, rtol=0, atol=10 * EPS)
    np.testing.assert_array_equal(gradient, vjp(jnp.ones_like(expected))[0])


# The examples of the statistical tests: the same scores over and over, with independent noise.
DRAWS, EPSILON = 8000, 0.7
ROW = np.array([1.0, 0.8, 0.9, -0.5, 0.2], np.float32)


def draws(name, key, num_samples=1, k=2):
    scores = jnp.broadcast_to(ROW, (DRAWS, 5))
    results = value_and_gradients(name, key, scores, k=k, epsilon=EPSILON, num_samples=num_samples)
    return tuple(np.asarray(result, np.float64) for result in results)


def expectation(name, k):
    ranks = range(1, k + 1) if name == SUM else [k]
    values = [reference.expected_top_k_value(ROW, rank, epsilon=EPSILON) for rank in ranks]
    gradients = [
        reference.expected_top_k_value_gradient(ROW, rank, epsilon=EPSILON) for rank in ranks
    ]
    return sum(values), sum(gradients)


@both
@pytest.mark.parametrize("one_key_an_example", [False, True])
def test_value_and_gradient_are_unbiased(name, key, one_key_an_example):
    keys = jax.random.split(key, DRAWS) if one_key_an_example else key
    value, gradient, _ = draws(name, keys)
    expected, expected_gradient = expectation(name, 2)
    # Five standard errors of the mean of independent draws: a deviation of one in two million.
    value_error = 5 * value.std() / math.sqrt(DRAWS)
    assert abs(value.mean() - expected) < value_error
    # Each coordinate is 1 with a probability that is the gradient, else 0.
    assert set(np.unique(gradient)) == {0.0, 1.0}
    error = 5 * np.sqrt(expected_gradient * (1 - expected_gradient) / DRAWS)
    assert (np.abs(gradient.mean(axis=0) - expected_gradient) < error).all()


@both
@pytest.mark.parametrize("one_key_an_example", [False, True])
def test_samples_of_an_example_are_independent(name, key, one_key_an_example):
    keys = jax.random.split(key, DRAWS) if one_key_an_example else key
    one, _, _ = draws(name, keys, num_samples=1)
    four, _, _ = draws(name, keys, num_samples=4)
    # The variance of a mean of four is a quarter. The relative standard error of a variance is
    # sqrt((kurtosis - 1) / n), and order statistics of normals have a kurtosis under 5: with two
    # variances, 5 * sqrt(2) * sqrt(4 / n). The same noise four times would give a ratio of 1.
    ratio = 4 * four.var() / one.var()
    assert abs(ratio - 1) < 5 * math.sqrt(2) * math.sqrt(4 / DRAWS)


@both
@pytest.mark.parametrize("one_key_an_example", [False, True])
def test_examples_have_independent_noise(name, key, one_key_an_example):
    keys = jax.random.split(key, DRAWS) if one_key_an_example else key
    value, _, _ = draws(name, keys)
    for lag in (1, 2, DRAWS // 2):
        correlation = np.corrcoef(value[lag:], value[:-lag])[0, 1]
        # The standard error of the correlation of n independent pairs is 1 / sqrt(n).
        assert abs(correlation) < 5 / math.sqrt(DRAWS - lag)


def keys_and_scores(key, rng):
    scores = jnp.asarray(rng.normal(size=(8, 5)), jnp.float32)
    return jax.random.split(key, 8), scores


@both
def test_a_key_an_example_makes_noise_that_ignores_the_batch(name, key, rng):
    keys, scores = keys_and_scores(key, rng)
    whole = value_and_gradients(name, keys, scores)
    for part in (slice(3, 5), np.array([7, 2])):
        parts = value_and_gradients(name, keys[part], scores[part])
        # The same noise; sums of four may be ordered differently in another shape.
        np.testing.assert_allclose(parts[0], whole[0][part], rtol=0, atol=20 * EPS)
        np.testing.assert_array_equal(parts[1], whole[1][part])
    alone = value_and_gradients(name, keys[4], scores[4])
    np.testing.assert_allclose(alone[0], whole[0][4], rtol=0, atol=20 * EPS)


@both
@pytest.mark.parametrize("check_vma", [False, True])
def test_shared_scores_and_epsilon_under_shard_map(name, key, rng, check_vma):
    """The cotangents of what is the same on all devices add up over them."""
    keys = jax.random.split(key, 8)
    row = jnp.asarray(rng.normal(size=5), jnp.float32)
    mesh = jax.make_mesh((8,), ("batch",), axis_types=(AxisType.Auto,))

    def local(keys, row, epsilon):
        scores = jnp.broadcast_to(row, (len(keys), 5))
        return getattr(operators, name)(keys, scores, 2, epsilon=epsilon, num_samples=4)

    split = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(PartitionSpec("batch"), PartitionSpec(), PartitionSpec()),
        out_specs=PartitionSpec("batch"),
        check_vma=check_vma,
    )

    def gradients(function):
        return jax.jit(jax.grad(lambda *shared: function(keys, *shared).sum(), argnums=(0, 1)))(
            row, jnp.float32(0.5)
        )

    for one, other in zip(gradients(split), gradients(local), strict=True):
        # Sums of 8 numbers of order 5, in another order.
        np.testing.assert_allclose(one, other, rtol=0, atol=80 * EPS)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("perturbed_top_k_sum", jnp.bfloat16), ("perturbed_top_k_value", jnp.float16)],
)
def test_half_precision_is_computed_in_float32(name, key, rng, dtype):
    scores = jnp.asarray(rng.normal(size=(3, 5)), dtype)
    value, gradient, _ = value_and_gradients(name, key, scores)
    exact, exact_gradient, _ = value_and_gradients(name, key, scores.astype(jnp.float32))
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, exact, rtol=0, atol=20 * EPS)
    assert gradient.dtype == dtype
    np.testing.assert_array_equal(gradient, exact_gradient.astype(dtype))


@both
def test_masked_classes_are_never_chosen(name, key, rng):
    scores = jnp.asarray(rng.normal(size=(4, 6)), jnp.float32).at[:, 2:4].set(-jnp.inf)
    value, gradient, _ = value_and_gradients(name, key, scores, epsilon=100.0)
    assert np.isfinite(value).all()
    np.testing.assert_array_equal(gradient[:, 2:4], 0)
