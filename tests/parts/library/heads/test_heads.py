"""Losses of a head over blocks of classes, beside references that have the scores of all classes.

Most tests share one shape, so that each loss is compiled once for each kind of head.
"""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from topk_jax import heads, losses
from topk_jax.operators import _normals

NUM_EXAMPLES, NUM_FEATURES, NUM_CLASSES, NUM_SAMPLES = 6, 5, 21, 4
# It does not divide the classes.
BLOCK = 8
KEY = jax.random.key(7)
MARGINS = np.linspace(0.5, 2.0, NUM_CLASSES, dtype=np.float32)
# Weights of the examples in what is differentiated.
SHARES = jnp.arange(1.0, NUM_EXAMPLES + 1)
PARAMETERS = {
    "cross_entropy": {},
    "top_k_hinge": {"k": 3},
    "convex_top_k_hinge": {"k": 3},
    "calibrated_top_k_hinge": {"k": 3},
    "noised_top_k_hinge": {
        "k": 3,
        "epsilon": 0.5,
        "num_samples": NUM_SAMPLES,
        "margins": MARGINS,
        "scale": 1.5,
    },
}
# Other arguments of a loss, which a reference does not take.
EXTRA = {"noised_top_k_hinge": {"key": KEY}}
# A dozen roundings of float32, relative to scores of about 5.
ROUNDING = 1e-5
SCALE = 3.0

each_loss = pytest.mark.parametrize("name", PARAMETERS)
each_head = pytest.mark.parametrize("kind", ["linear", "cosine"])


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


def head_of(kind, weights, bias):
    if kind == "linear":
        return heads.LinearHead(weights, bias)
    return heads.CosineHead(weights, SCALE)


@functools.cache
def compiled(name, kind, block_size=BLOCK):
    """Values, and gradients of their weighted sum by features, weights and bias."""

    def total(features, weights, bias, labels):
        head = head_of(kind, weights, bias)
        options = PARAMETERS[name] | EXTRA.get(name, {})
        values = getattr(heads, name)(features, head, labels, block_size=block_size, **options)
        return (SHARES.astype(values.dtype) * values).sum(), values

    return jax.jit(lambda *arrays: _values_first(total, arrays))


def _values_first(total, arrays):
    (_, values), gradients = jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True)(*arrays)
    return values, gradients


def scores_of(kind, features, weights, bias):
    """The scores in float64; a slope in them to slopes in features, weights and bias."""
    features, weights, bias = (np.asarray(array, np.float64) for array in (features, weights, bias))
    if kind == "linear":
        return features @ weights + bias, lambda slope: (
            slope @ weights.T,
            features.T @ slope,
            slope.sum(axis=0),
        )
    long, wide = np.linalg.norm(features, axis=1, keepdims=True), np.linalg.norm(weights, axis=0)
    rows, columns = features / long, weights / wide

    def pulled_back(slope):
        of_rows, of_columns = SCALE * slope @ columns.T, SCALE * rows.T @ slope
        of_rows -= rows * (rows * of_rows).sum(axis=1, keepdims=True)
        of_columns -= columns * (columns * of_columns).sum(axis=0)
        return of_rows / long, of_columns / wide, np.zeros(NUM_CLASSES)

    return SCALE * rows @ columns, pulled_back


def expected(name, kind, features, weights, bias, labels, shares=SHARES):
    """The same in float64, from the reference's gradient by the scores of all classes."""
    given = {"noise": noise()} if name == "noised_top_k_hinge" else {}
    scores, pulled_back = scores_of(kind, features, weights, bias)
    arguments = PARAMETERS[name] | given
    values = getattr(reference, name)(scores, labels, **arguments)
    slope = getattr(reference, f"{name}_gradient")(scores, labels, **arguments)
    return values, pulled_back(slope * np.asarray(shares)[:, None])


@functools.cache
def noise():
    """The noise of KEY, as the plain loss draws it, `[M, n, L]`."""
    words = _normals.row_words(KEY, NUM_EXAMPLES)
    classes = jnp.arange(NUM_CLASSES)
    return np.stack(
        [
            [_normals.normals(row, jnp.uint32(sample), classes, jnp.float32) for row in words]
            for sample in range(NUM_SAMPLES)
        ]
    ).astype(np.float64)


def assert_close(ours, theirs, tolerance=ROUNDING):
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(
            np.asarray(one, np.float64), other, rtol=tolerance, atol=tolerance
        )


@each_loss
@each_head
def test_values_and_gradients_are_those_of_all_scores(name, kind, rng):
    arrays = drawn(rng)
    assert_close(compiled(name, kind)(*arrays), expected(name, kind, *arrays))


@each_loss
@pytest.mark.parametrize("block_size", [1, NUM_CLASSES, None])
def test_the_size_of_the_blocks_changes_nothing(name, block_size, rng):
    arrays = drawn(rng)
    assert_close(compiled(name, "linear", block_size)(*arrays), compiled(name, "linear")(*arrays))


@each_loss
def test_classes_of_equal_scores_rank_by_their_index(name, rng):
    features, weights, bias, labels = drawn(rng)
    # Three vectors for all classes, so that most scores are equal; gradients show the ranks.
    arrays = (features, weights[:, jnp.arange(NUM_CLASSES) % 3], 0 * jnp.maximum(bias, 0), labels)
    assert_close(compiled(name, "linear")(*arrays), expected(name, "linear", *arrays))


@each_loss
def test_scores_of_1e4(name, rng):
    features, weights, bias, labels = drawn(rng)
    arrays = (8192 * features, weights, bias, labels)
    values, gradients = compiled(name, "linear")(*arrays)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    expected_values, expected_gradients = expected(name, "linear", *arrays)
    assert_close(values, expected_values)
    # Sums of such features.
    assert_close(gradients[1:], expected_gradients[1:], 1e-6 * 8192)


@each_loss
def test_masked_classes_are_harmless(name, rng):
    features, weights, bias, labels = drawn(rng)
    masked = jnp.ones(NUM_CLASSES, jnp.bool_).at[labels].set(False)
    arrays = (features, weights, jnp.where(masked, -jnp.inf, bias), labels)
    values, gradients = compiled(name, "linear")(*arrays)
    assert_close(values, expected(name, "linear", *arrays)[0])
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert (np.asarray(gradients[1])[:, masked] == 0).all()
    # A masked true class has a huge loss and a finite gradient.
    values, gradients = compiled(name, "linear")(
        features, weights, bias.at[labels[0]].set(-jnp.inf), labels
    )
    assert not np.isnan(values).any()
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@each_loss
@each_head
def test_examples_that_do_not_count_have_no_part(name, kind, rng):
    features, weights, bias, labels = drawn(rng)
    counts = np.arange(NUM_EXAMPLES) % 3 != 1
    options = PARAMETERS[name] | EXTRA.get(name, {})

    @jax.jit
    def results(features, weights, bias, labels):
        def total(features, weights, bias):
            head = head_of(kind, weights, bias)
            values = getattr(heads, name)(
                features, head, labels, where=jnp.asarray(counts), block_size=BLOCK, **options
            )
            return (SHARES * values).sum(), values

        return _values_first(total, (features, weights, bias))

    hurt = features.at[1].set(jnp.nan), weights, bias, labels.at[jnp.array([1, 4])].set(-100)
    values, (of_features, *of_head) = results(*hurt)
    assert (np.asarray(of_features)[~counts] == 0).all()
    # As with a weight of 0.
    expected_values, (expected_features, *expected_head) = expected(
        name, kind, features, weights, bias, labels, shares=np.where(counts, SHARES, 0)
    )
    assert_close(values, np.where(counts, expected_values, 0))
    assert_close(of_features, expected_features)
    assert_close(of_head, expected_head)


@each_loss
def test_a_label_out_of_range_and_nan_features_are_nan_for_their_example_alone(name, rng):
    features, weights, bias, labels = drawn(rng)
    clean_values, clean_gradients = compiled(name, "linear")(features, weights, bias, labels)
    others = np.arange(NUM_EXAMPLES) != 2
    for arrays in (
        (features, weights, bias, labels.at[2].set(-1)),
        (features, weights, bias, labels.at[2].set(NUM_CLASSES)),
        (features.at[2, 3].set(jnp.nan), weights, bias, labels),
    ):
        values, gradients = compiled(name, "linear")(*arrays)
        assert np.isnan(values[2])
        np.testing.assert_array_equal(values[others], clean_values[others])
        of_features = np.asarray(gradients[0])
        assert np.isnan(of_features[2]).all()
        np.testing.assert_array_equal(of_features[others], clean_gradients[0][others])
        assert np.isnan(gradients[1]).any()


@each_loss
@each_head
def test_a_nan_weight_is_nan_for_all_examples(name, kind, rng):
    features, weights, bias, labels = drawn(rng)
    # A class in the first block, which a selection need not find.
    values, _ = compiled(name, kind)(features, weights.at[0, 1].set(-jnp.nan), bias, labels)
    assert np.isnan(values).all()


@each_loss
def test_half_precision(name, rng):
    features, weights, bias, labels = drawn(rng)
    arrays = (features, weights.astype(jnp.bfloat16), bias, labels)
    values, gradients = compiled(name, "linear")(*arrays)
    assert values.dtype == jnp.float32
    assert gradients[1].dtype == jnp.bfloat16
    # Eighths are exact in bfloat16. Computed and added up in float32: only the result is rounded.
    theirs, expected_gradients = expected(name, "linear", *arrays)
    assert_close(values, theirs)
    assert_close(gradients[1], expected_gradients[1], float(jnp.finfo(jnp.bfloat16).eps))


# The noise of float64 is other noise, so there is no reference for the noised hinge.
@pytest.mark.parametrize("name", [name for name in PARAMETERS if name != "noised_top_k_hinge"])
def test_float64_stays(name, rng):
    with jax.enable_x64(True):
        *real, labels = drawn(rng)
        # No exact scores, so that roundings are seen.
        arrays = (*(array.astype(jnp.float64) / 3 for array in real), labels)
        ours = compiled(name, "cosine")(*arrays)
        assert ours[0].dtype == ours[1][1].dtype == jnp.float64
        # Some roundings of 1e-16 each.
        assert_close(ours, expected(name, "cosine", *arrays), 1e-12)


@pytest.mark.parametrize("block_size", [8, 64])
def test_the_noise_is_that_of_the_plain_loss(block_size, rng):
    features, weights, bias, labels = drawn(rng)
    options = PARAMETERS["noised_top_k_hinge"] | EXTRA["noised_top_k_hinge"]

    @jax.jit
    def both(features, weights, bias):
        head = heads.LinearHead(weights, bias)
        ours = jax.value_and_grad(
            lambda features: heads.noised_top_k_hinge(
                features, head, labels, block_size=block_size, **options
            ).sum()
        )
        theirs = jax.value_and_grad(
            lambda features: losses.noised_top_k_hinge(
                features @ weights + bias[None], labels, **options
            ).sum()
        )
        return ours(features), theirs(features)

    (ours, our_gradient), (theirs, their_gradient) = both(features, weights, bias)
    # The scores are exact. The gradient shows the selected classes: multiples of 1.5 / 4 / 8.
    np.testing.assert_array_equal(our_gradient, their_gradient)
    # A product and a sum may be contracted in one of the two.
    np.testing.assert_allclose(ours, theirs, rtol=3e-7)


def test_slopes_of_epsilon_margins_and_scales(rng):
    with jax.enable_x64(True):
        features, weights, _, labels = drawn(rng)
        features, weights = features.astype(jnp.float64), weights.astype(jnp.float64)

        @jax.jit
        def total(epsilon, margin, scale, of_cosines):
            return heads.noised_top_k_hinge(
                features,
                heads.CosineHead(weights, of_cosines),
                labels,
                k=2,
                epsilon=epsilon,
                num_samples=3,
                key=KEY,
                margins=margin,
                scale=scale,
                block_size=BLOCK,
            ).sum()

        point = tuple(map(jnp.float64, (0.3, 0.7, 1.5, 2.0)))
        slopes = jax.jit(jax.grad(total, argnums=(0, 1, 2, 3)))(*point)
        for index, slope in enumerate(slopes):
            above, below = (
                total(*(x + step * (i == index) for i, x in enumerate(point)))
                for step in (1e-6, -1e-6)
            )
            # Piecewise a product of two of them: 1e-12, and 1e-15 over the step.
            np.testing.assert_allclose(slope, (above - below) / 2e-6, atol=1e-7)


@each_loss
def test_exported_for_any_number_of_examples(name, rng):
    features, weights, bias, labels = drawn(rng)

    def total(weights, features, labels):
        options = PARAMETERS[name] | EXTRA.get(name, {})
        head = heads.LinearHead(weights, bias)
        return getattr(heads, name)(features, head, labels, **options).sum()

    (size,) = jax.export.symbolic_shape("n")
    program = jax.export.export(
        jax.jit(jax.value_and_grad(total)), platforms=("cpu", "cuda", "tpu")
    )(
        jax.ShapeDtypeStruct(weights.shape, weights.dtype),
        jax.ShapeDtypeStruct((size, NUM_FEATURES), features.dtype),
        jax.ShapeDtypeStruct((size,), labels.dtype),
    )
    # Without jit, and with weights of NumPy, which the custom rules then get.
    alone = jax.value_and_grad(total)(np.asarray(weights), features, labels)
    assert_close(program.call(weights, features, labels), alone)


def test_a_head_of_one_class_has_no_wrong_class():
    head, labels = heads.LinearHead(jnp.ones((1, 1))), jnp.array([0, 1, 0])
    features = jnp.array([[2.0], [2.0], [jnp.nan]])
    found = heads.convex_top_k_hinge(features, head, labels, k=1)
    np.testing.assert_array_equal(found, [0, np.nan, np.nan])


def test_a_batch_of_any_shape_and_vmap(rng):
    features, weights, bias, labels = drawn(rng)
    values = compiled("top_k_hinge", "linear")(features, weights, bias, labels)[0]

    @jax.jit
    def shaped(features, labels):
        def loss(features, labels):
            return heads.top_k_hinge(
                features, heads.LinearHead(weights, bias), labels, k=3, block_size=BLOCK
            )

        return (
            loss(features, labels),
            jax.vmap(loss)(features, labels),
            loss(features[0, 0], labels[0, 0]),
        )

    grid, mapped, single = shaped(features.reshape(2, 3, NUM_FEATURES), labels.reshape(2, 3))
    np.testing.assert_array_equal(grid, values.reshape(2, 3))
    np.testing.assert_array_equal(mapped, values.reshape(2, 3))
    assert single == values[0]


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (heads.LinearHead(jnp.ones((4, 21))), "head.weights"),
        (heads.LinearHead(jnp.ones((5, 3)), jnp.ones(4)), "head.bias"),
        (heads.CosineHead(jnp.ones((5, 3)), jnp.ones(3)), "head.scale"),
    ],
)
def test_a_wrong_head_is_refused(head, name):
    with pytest.raises(ValueError, match=name):
        heads.top_k_hinge(jnp.ones((6, 5)), head, jnp.zeros(6, jnp.int32), k=1)
