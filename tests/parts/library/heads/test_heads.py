"""A head over blocks of classes, beside references that have the scores of all classes.

Most tests share one shape, so that each function is compiled once.
"""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.parts import lowered
from topk_jax import heads

NUM_EXAMPLES, NUM_FEATURES, NUM_CLASSES, K = 6, 5, 21, 12
# It does not divide the classes, and is smaller than K.
BLOCK = 8
# Weights of the examples in what is differentiated, and of the K scores: they show the order.
SHARES, OF_RANKS = np.arange(1.0, NUM_EXAMPLES + 1), np.arange(1.0, K + 1)
# A dozen roundings of float32, relative to scores of about 5.
ROUNDING = 1e-5

each_function = pytest.mark.parametrize("name", ["cross_entropy", "top_k"])


def drawn(rng):
    """Features, weights, biases (one masks a class), and labels of other classes.

    All numbers are multiples of 1/8 and small, so that scores are exact, and selections equal.
    """

    def eighths(*shape):
        return jnp.asarray(rng.integers(-16, 17, shape) / 8, jnp.float32)

    bias = eighths(NUM_CLASSES).at[4].set(-jnp.inf)
    labels = jnp.asarray(rng.integers(5, NUM_CLASSES, NUM_EXAMPLES), jnp.int32)
    features = eighths(NUM_EXAMPLES, NUM_FEATURES)
    return features, eighths(NUM_FEATURES, NUM_CLASSES), bias, labels


def total(name, features, weights, bias, labels, k=K, **options):
    """A weighted sum of the results, and the results."""
    head = heads.LinearHead(weights, bias)
    if name == "cross_entropy":
        losses = heads.cross_entropy(features, head, labels, **options)
        return (jnp.asarray(np.resize(SHARES, losses.shape), losses.dtype) * losses).sum(), losses
    values, classes = heads.top_k(features, head, k=k, **options)
    finite = jnp.where(jnp.isneginf(values), 0, values)
    return (jnp.asarray(OF_RANKS[:k], values.dtype)[None] * finite).sum(), (values, classes)


@functools.cache
def compiled(name, block_size=BLOCK, k=K):
    """Results, and gradients of their weighted sum by features, weights and bias."""
    function = functools.partial(total, name, k=k, block_size=block_size)
    program = jax.value_and_grad(function, argnums=(0, 1, 2), has_aux=True)

    @jax.jit
    def results(*arrays):
        (_, found), slopes = program(*arrays)
        return found, slopes

    return results


def expected(name, features, weights, bias, labels, k=K, shares=SHARES):
    """The same in float64."""
    features, weights, bias = (np.asarray(array, np.float64) for array in (features, weights, bias))
    scores = features @ weights + bias
    if name == "cross_entropy":
        found = reference.cross_entropy(scores, labels)
        slope = reference.cross_entropy_gradient(scores, labels) * shares[:, None]
    else:
        found = reference.heads.largest(scores, k)
        slope = reference.heads.largest_gradient(scores, OF_RANKS[:k], k)
    return found, (slope @ weights.T, features.T @ slope, slope.sum(axis=0))


def assert_close(ours, theirs, tolerance=ROUNDING):
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(
            np.asarray(one, np.float64), other, rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize(
    ("name", "block_size", "k"),
    [
        *(("cross_entropy", size, K) for size in (1, BLOCK, NUM_CLASSES, None)),
        *(("top_k", *pair) for pair in ((BLOCK, K), (1, 1), (None, 3))),
    ],
)
def test_results_and_gradients_are_those_of_all_scores(name, block_size, k, rng):
    arrays = drawn(rng)
    assert_close(compiled(name, block_size, k)(*arrays), expected(name, *arrays, k=k))


@each_function
def test_equal_scores_rank_by_their_class_over_blocks(name, rng):
    features, weights, bias, labels = drawn(rng)
    # Three vectors for all classes, and an example whose scores are all 0.
    weights = weights[:, jnp.arange(NUM_CLASSES) % 3]
    arrays = (features.at[2].set(0), weights, jnp.zeros_like(bias), labels)
    assert_close(compiled(name)(*arrays), expected(name, *arrays))


def test_0_and_minus_0_are_equal():
    head = heads.LinearHead(jnp.array([[0.0, -0.0, 0.0, -1.0]]), jnp.array([-0.0, 0.0, -0.0, 0.0]))
    for feature in (1.0, -0.0):
        values, classes = heads.top_k(jnp.array([[feature]]), head, k=4, block_size=2)
        np.testing.assert_array_equal(classes, [[0, 1, 2, 3]])
        assert not np.signbit(values[:, :3]).any()


def test_scores_of_1e4(rng):
    features, weights, bias, labels = drawn(rng)
    arrays = (8192 * features, weights, bias, labels)
    values, gradients = compiled("cross_entropy")(*arrays)
    wanted, wanted_gradients = expected("cross_entropy", *arrays)
    assert_close(values, wanted)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    # Sums of such features.
    assert_close(gradients[1:], wanted_gradients[1:], 1e-6 * 8192)


def test_masked_classes_are_harmless(rng):
    features, weights, bias, labels = drawn(rng)
    masked = jnp.ones(NUM_CLASSES, jnp.bool_).at[labels].set(False)
    arrays = (features, weights, jnp.where(masked, -jnp.inf, bias), labels)
    values, gradients = compiled("cross_entropy")(*arrays)
    assert_close(values, expected("cross_entropy", *arrays)[0])
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert (np.asarray(gradients[1])[:, masked] == 0).all()
    # A masked true class has a huge loss and a finite gradient.
    values, gradients = compiled("cross_entropy")(
        features, weights, bias.at[labels[0]].set(-jnp.inf), labels
    )
    assert not np.isnan(values).any()
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_the_best_classes_have_masked_ones_last_and_without_a_slope(rng):
    features, weights, _, labels = drawn(rng)
    bias = jnp.full(NUM_CLASSES, -jnp.inf).at[jnp.array([9, 20])].set(0)
    (values, classes), slopes = compiled("top_k")(features, weights, bias, labels)
    assert np.isfinite(values[:, :2]).all()
    assert np.isneginf(values[:, 2:]).all()
    # A set has all k classes, as in `sets.top_k_set`.
    np.testing.assert_array_equal(classes[:, 2:], [[0, 1, 2, 3, 4, 5, 6, 7, 8, 10]] * NUM_EXAMPLES)
    assert all(np.isfinite(slope).all() for slope in slopes)
    assert (np.asarray(slopes[1])[:, np.isneginf(bias)] == 0).all()


@each_function
def test_what_is_wrong_is_nan_for_its_example_alone(name, rng):
    features, weights, bias, labels = drawn(rng)
    clean, clean_gradients = compiled(name)(features, weights, bias, labels)
    others = np.arange(NUM_EXAMPLES) != 2
    wrong = [(features.at[2, 3].set(-jnp.nan), weights, bias, labels)]
    if name == "cross_entropy":
        wrong += [(features, weights, bias, labels.at[2].set(label)) for label in (-1, NUM_CLASSES)]
    for arrays in wrong:
        found, gradients = compiled(name)(*arrays)
        assert np.isnan(jax.tree.leaves(found)[0][2]).all()
        assert name == "cross_entropy" or (found[1][2] == -1).all()
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(clean), strict=True):
            np.testing.assert_array_equal(one[others], other[others])
        assert np.isnan(gradients[0][2]).all()
        np.testing.assert_array_equal(gradients[0][others], clean_gradients[0][others])
        assert np.isnan(gradients[1]).any()


@each_function
def test_a_nan_or_infinity_of_any_class_is_nan_for_all_examples(name, rng):
    features, weights, bias, labels = drawn(rng)
    # A class in the first block, and one in the last; a selection need not find either.
    for hurt, biases in (
        (weights.at[0, 1].set(-jnp.nan), bias),
        (weights.at[0, 20].set(jnp.nan), bias),
        (weights, bias.at[7].set(jnp.inf)),
    ):
        found, _ = compiled(name)(features, hurt, biases, labels)
        assert np.isnan(jax.tree.leaves(found)[0]).all()


@each_function
def test_half_precision(name, rng):
    features, weights, bias, labels = drawn(rng)
    arrays = (features.astype(jnp.float16), weights.astype(jnp.bfloat16), bias, labels)
    found, slopes = compiled(name)(*arrays)
    assert jax.tree.leaves(found)[0].dtype == jnp.float32
    assert [slope.dtype for slope in slopes] == [jnp.float16, jnp.bfloat16, jnp.float32]
    # Eighths are exact in half precision: computed and added up in float32, only the result is
    # rounded.
    wanted, wanted_slopes = expected(name, features, weights, bias, labels)
    assert_close(found, wanted)
    assert_close(slopes, wanted_slopes, float(jnp.finfo(jnp.bfloat16).eps))


@each_function
def test_vmap_and_no_examples(name, rng):
    features, weights, bias, labels = drawn(rng)

    def found(features, labels):
        return total(name, features, weights, bias, labels, block_size=BLOCK)[1]

    of_each = jax.jit(jax.vmap(found))(features.reshape(2, 3, -1), labels.reshape(2, 3))
    of_all, of_none = found(features, labels), found(features[:0], labels[:0])
    for one, other, none in zip(*map(jax.tree.leaves, (of_each, of_all, of_none)), strict=True):
        np.testing.assert_array_equal(one.reshape(other.shape), other)
        assert none.shape == (0, *other.shape[1:])


@each_function
def test_exported_for_any_number_of_examples_on_each_platform(name, rng):
    features, weights, bias, labels = drawn(rng)
    (size,) = jax.export.symbolic_shape("n")
    shapes = (jax.ShapeDtypeStruct((size, NUM_FEATURES), jnp.float32), weights, bias)
    platforms = ("cpu", *lowered.PLATFORMS)

    def summed(features, weights, bias, labels):
        head = heads.LinearHead(weights, bias)
        if name == "top_k":
            return heads.top_k(features, head, k=K)[0].sum()
        return heads.cross_entropy(features, head, labels).sum()

    program = lowered.lowered(
        jax.jit(jax.value_and_grad(summed, argnums=1)),
        *shapes,
        jax.ShapeDtypeStruct((size,), jnp.int32),
        platforms=platforms,
    )
    # Without jit, and with weights of NumPy, which the custom rules then get.
    alone = jax.value_and_grad(summed, argnums=1)(features, np.asarray(weights), bias, labels)
    assert_close(program.call(features, weights, bias, labels), alone)


@each_function
def test_the_scores_of_all_classes_are_never_in_memory(name):
    num_examples = 64

    def temporary(num_classes):
        features = jax.ShapeDtypeStruct((num_examples, 16), jnp.float32)
        weights = jax.ShapeDtypeStruct((16, num_classes), jnp.float32)
        labels = jax.ShapeDtypeStruct((num_examples,), jnp.int32)

        def summed(weights, features, labels):
            return total(name, features, weights, None, labels, block_size=2**20 // num_examples)

        # What the gradient of the best classes is added up in would be as large as the weights.
        program = jax.grad(summed, has_aux=True) if name == "cross_entropy" else summed
        compiled = jax.jit(program).lower(weights, features, labels).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    # All scores have 25 MB and 77 MB; a block and what XLA reads it from have 4 MB each.
    few = temporary(100_000)
    assert few < 20 * 2**20
    assert temporary(300_000) == few


@pytest.mark.parametrize("length", [2.0**-30, 1.0, 2.0**60, 2.0**66, 2.0**100])
def test_cosines_do_not_depend_on_lengths(length):
    direction = jnp.array([[0.6, 0.8]])

    def loss(features, weights):
        head = heads.LinearHead(10 * heads.unit_vectors(weights, axis=0))
        unit = heads.unit_vectors(features, axis=-1)
        return heads.cross_entropy(unit, head, jnp.array([0])).sum()

    wanted, wanted_gradient = jax.value_and_grad(loss)(direction, jnp.eye(2))
    value, gradient = jax.value_and_grad(loss)(length * direction, length * jnp.eye(2))
    # The same numbers, times powers of two.
    np.testing.assert_array_equal(value, wanted)
    # Below the smallest normal number, XLA on the CPU has 0.
    atol = length * float(jnp.finfo(jnp.float32).tiny)
    np.testing.assert_allclose(np.float64(gradient) * length, wanted_gradient, rtol=0, atol=atol)
    # A vector without a length has no gradient.
    assert (jax.grad(loss)(0 * direction, jnp.eye(2)) == 0).all()


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (heads.LinearHead(jnp.ones((4, 21))), "head.weights"),
        (heads.LinearHead(jnp.ones((5, 3)), jnp.ones(4)), "head.bias"),
    ],
)
def test_a_wrong_head_is_refused(head, name):
    with pytest.raises(ValueError, match=name):
        heads.cross_entropy(jnp.ones((6, 5)), head, jnp.zeros(6, jnp.int32))
