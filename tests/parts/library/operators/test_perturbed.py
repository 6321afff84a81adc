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
from topk_jax.operators import _perturbed_selection

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


@both
def test_gradient_in_epsilon(name, rng):
    with jax.enable_x64(True):
        scores, noise = rng.normal(size=(3, 5)), rng.normal(size=(4, 3, 5))

        @jax.jit
        def total(epsilon):
            return getattr(operators, name)(
                None, scores, 2, epsilon=epsilon, num_samples=4, noise=noise
            ).sum()

        # Piecewise linear in epsilon: the difference is exact but for the rounding, 1e-15 / step.
        difference = (total(0.5 + 1e-6) - total(0.5 - 1e-6)) / 2e-6
        assert total(0.5).dtype == jnp.float64
        np.testing.assert_allclose(jax.grad(total)(0.5), difference, rtol=0, atol=1e-8)


@both
def test_noise_is_a_constant(name, rng):
    noise = jnp.asarray(rng.normal(size=(4, 5)), jnp.float32)

    def function(noise):
        return getattr(operators, name)(
            None, jnp.arange(5.0), 2, epsilon=1.0, num_samples=4, noise=noise
        )

    np.testing.assert_array_equal(jax.jit(jax.grad(function))(noise), 0)


@both
@pytest.mark.parametrize("given", [False, True])
def test_no_noise_is_the_hard_operator(name, key, rng, given):
    scores = jnp.asarray(rng.normal(size=(4, 6)), jnp.float32).round(1)
    noise = jnp.asarray(rng.normal(size=(4, 4, 6)), jnp.float32) if given else None
    value, gradient, _ = value_and_gradients(
        name, None if given else key, scores, k=3, epsilon=0.0, noise=noise
    )
    hard = name.removeprefix("perturbed_")
    expected, vjp = jax.vjp(lambda scores: getattr(operators, hard)(scores, 3), scores)
    # Four equal numbers of order 5 are added up, which may round.
    np.testing.assert_allclose(value, expected, rtol=0, atol=10 * EPS)
    np.testing.assert_array_equal(gradient, vjp(jnp.ones_like(expected))[0])


@pytest.mark.parametrize("given", [False, True])
def test_value_is_the_difference_of_two_sums(key, rng, given):
    scores = jnp.asarray(rng.normal(size=(4, 6)), jnp.float32)
    noise = jnp.asarray(rng.normal(size=(4, 4, 6)), jnp.float32) if given else None
    draw = functools.partial(
        value_and_gradients, key=None if given else key, scores=scores, noise=noise
    )
    for value, of_three, of_two in zip(
        draw(VALUE, k=3), draw(SUM, k=3), draw(SUM, k=2), strict=True
    ):
        # Sums of 3 and 2 numbers of order 5, over 4 samples; the gradients are exact.
        np.testing.assert_allclose(value, of_three - of_two, rtol=0, atol=50 * EPS)


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
def test_gradient_in_epsilon_is_unbiased(name, key):
    _, _, slope = draws(name, key)
    step = 1e-4
    ranks = [1, 2] if name == SUM else [2]
    # Central differences of a smooth function: step^2, far below the error of the mean.
    expected = sum(
        reference.expected_top_k_value(ROW, rank, epsilon=EPSILON + step)
        - reference.expected_top_k_value(ROW, rank, epsilon=EPSILON - step)
        for rank in ranks
    ) / (2 * step)
    # A draw's slope is a sum of at most two of five standard normals: its standard deviation is
    # below the deviation of all five, sqrt(5). Five standard errors of the mean.
    assert abs(slope / DRAWS - expected) < 5 * math.sqrt(5 / DRAWS)


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


@both
def test_same_key_same_draw(name, key):
    scores = jnp.broadcast_to(ROW, (3, 5))
    first = value_and_gradients(name, key, scores)
    for one, other in zip(first, value_and_gradients(name, key, scores), strict=True):
        np.testing.assert_array_equal(one, other)
    other_key = value_and_gradients(name, jax.random.fold_in(key, 1), scores)
    assert (other_key[0] != first[0]).all()


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
def test_keys_of_a_batch_of_two_axes(name, key, rng):
    scores = jnp.asarray(rng.normal(size=(2, 5, 3)), jnp.float32)
    keys = jax.random.split(key, (2, 3))
    value, gradient, _ = value_and_gradients(name, keys, scores, axis=1)
    for row, column in np.ndindex(2, 3):
        alone = value_and_gradients(name, keys[row, column], scores[row, :, column])
        np.testing.assert_allclose(value[row, column], alone[0], rtol=0, atol=20 * EPS)
        np.testing.assert_array_equal(gradient[row, :, column], alone[1])


@both
def test_legacy_keys_draw_the_same(name, rng):
    scores = jnp.asarray(rng.normal(size=(2, 5)), jnp.float32)
    expected = value_and_gradients(name, jax.random.key(3), scores)[0]
    legacy = jax.random.PRNGKey(3)
    np.testing.assert_array_equal(value_and_gradients(name, legacy, scores)[0], expected)
    on_host = getattr(operators, name)(np.asarray(legacy), scores, 2, epsilon=0.5, num_samples=4)
    # Under jit or not.
    np.testing.assert_allclose(on_host, expected, rtol=0, atol=20 * EPS)
    keys = jax.random.split(jax.random.key(4), 2)
    np.testing.assert_array_equal(
        value_and_gradients(name, jax.random.key_data(keys), scores)[0],
        value_and_gradients(name, keys, scores)[0],
    )


@both
@pytest.mark.parametrize("variant", ["none", "vmap", "shard_map"])
def test_transformations_with_a_key_an_example(name, key, rng, variant):
    keys, scores = keys_and_scores(key, rng)
    assert len(scores) == jax.device_count()

    def function(key, scores):
        return value_and_gradients.__wrapped__(name, key, scores)[:2]

    mesh = jax.make_mesh((8,), ("batch",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("batch")
    transformed = {
        "none": function,
        "vmap": jax.jit(jax.vmap(function)),
        "shard_map": jax.jit(jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec)),
    }[variant]
    value, gradient = transformed(keys, scores)
    expected, expected_gradient, _ = value_and_gradients(name, keys, scores)
    np.testing.assert_allclose(value, expected, rtol=0, atol=20 * EPS)
    np.testing.assert_array_equal(gradient, expected_gradient)


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
def test_float64_stays_float64(name):
    with jax.enable_x64(True):
        scores = jnp.arange(5.0)
        call = functools.partial(getattr(operators, name), k=2, epsilon=0.5, num_samples=4)
        assert jax.jit(call)(jax.random.key(0), scores).dtype == jnp.float64


@both
def test_masked_classes_are_never_chosen(name, key, rng):
    scores = jnp.asarray(rng.normal(size=(4, 6)), jnp.float32).at[:, 2:4].set(-jnp.inf)
    value, gradient, _ = value_and_gradients(name, key, scores, epsilon=100.0)
    assert np.isfinite(value).all()
    np.testing.assert_array_equal(gradient[:, 2:4], 0)


@both
@pytest.mark.parametrize("scale", [1e-6, 1e4])
def test_noise_scales_with_the_scores(name, key, rng, scale):
    scores = jnp.asarray(rng.normal(size=(4, 6)), jnp.float32)
    value, gradient, _ = value_and_gradients(name, key, scores)
    scaled = value_and_gradients(name, key, scores * scale, epsilon=0.5 * scale)
    # Numbers of order 10, each rounded a few times in another place.
    np.testing.assert_allclose(scaled[0] / scale, value, rtol=0, atol=100 * EPS)
    np.testing.assert_array_equal(scaled[1], gradient)


@both
def test_nan_spoils_its_own_example_alone(name, key, rng):
    clean = jnp.asarray(rng.normal(size=(3, 5)), jnp.float32)
    expected = value_and_gradients(name, key, clean)
    actual = value_and_gradients(name, key, clean.at[1, 4].set(jnp.nan))
    for one, other in zip(actual[:2], expected[:2], strict=True):
        assert np.isnan(one[1]).all()
        np.testing.assert_array_equal(one[np.array([0, 2])], other[np.array([0, 2])])


@both
def test_empty_batches(name, key):
    for keys in (key, jax.random.split(key, 0)):
        assert value_and_gradients(name, keys, jnp.zeros((0, 5)))[0].shape == (0,)


@both
def test_the_backward_pass_keeps_the_selected_coordinates_alone(name, key):
    num_samples, num_examples, num_classes, k = 16, 8, 64, 3

    @jax.jit
    def function(scores, epsilon):
        return getattr(operators, name)(key, scores, k, epsilon=epsilon, num_samples=num_samples)

    _, vjp = jax.vjp(function, jnp.zeros((num_examples, num_classes)), jnp.float32(1.0))
    sizes = sorted(leaf.size for leaf in jax.tree.leaves(vjp))
    chosen = 1 if name == VALUE else k
    assert sizes[-1] == num_samples * num_examples * chosen
    assert sum(sizes) < 2 * sizes[-1]


@both
def test_a_gpu_selects_the_same_from_parts_of_rows(name, key, rng, monkeypatch):
    scores = jnp.asarray(rng.normal(size=(3, 70)), jnp.float32)
    on_cpu = value_and_gradients(name, key, scores)
    # Two parts of the rows of 4 samples have more.
    monkeypatch.setattr(_perturbed_selection, "_FEWEST_THREADS", 700)
    of_cuda = []

    def choose(*arrays, default, cuda=None, **_):
        of_cuda.append(cuda is not None)
        return (cuda or default)(*arrays)

    monkeypatch.setattr(jax.lax, "platform_dependent", choose)
    # Another function, or the program for the CPU would be taken.
    on_gpu = for_users(
        functools.partial(value_and_gradients.__wrapped__, name, k=2, epsilon=0.5, num_samples=4)
    )(key, scores)
    assert any(of_cuda)
    # What is selected is equal; the perturbed scores and their noise are rounded otherwise.
    np.testing.assert_array_equal(on_gpu[1], on_cpu[1])
    for elsewhere, here in zip(on_gpu, on_cpu, strict=True):
        np.testing.assert_allclose(elsewhere, here, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("num_rows", "length", "num_parts"),
    # Few rows; enough; rows of fewer entries than a warp has threads; long rows.
    [(768, 1000, 8), (2560, 1000, 1), (768, 100, 1), (768, 10_000, 1)],
)
def test_few_rows_are_selected_from_in_parts_on_a_gpu(num_rows, length, num_parts):
    assert _perturbed_selection._num_parts(num_rows, length, k=6) == num_parts
