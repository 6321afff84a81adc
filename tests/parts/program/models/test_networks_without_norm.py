"""Networks with dropout, windows of any size, and a head of places."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.parts.program.models import tiny
from train.models import HEADS
from train.models.classifier import Classifier
from train.models.layers import adaptive_mean
from train.models.networks.small import MLP
from train.training import randomness

NUM_CLASSES = 5
IMAGE_SHAPE = (63, 70, 1)


def with_head(network, head):
    """A classifier, and variables of it, no two alike."""
    model = Classifier(network, HEADS[head](NUM_CLASSES))
    rng = np.random.default_rng(0)
    _, variables = tiny.shapes(model, IMAGE_SHAPE)
    return model, jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), variables
    )


@pytest.mark.parametrize(
    ("height", "width", "size"), [(6, 6, 6), (12, 18, 6), (13, 7, 6), (1, 4, 7)]
)
def test_the_windows_of_an_adaptive_mean(height, width, size, rng):
    inputs = rng.normal(size=(2, height, width, 3)).astype(np.float32)
    expected = np.empty((2, size, size, 3))
    for row, column in np.ndindex(size, size):
        # As PyTorch documents them: from the floor to the ceiling of an equal division.
        rows = slice(row * height // size, int(np.ceil((row + 1) * height / size)))
        columns = slice(column * width // size, int(np.ceil((column + 1) * width / size)))
        expected[:, row, column] = inputs[:, rows, columns].mean(axis=(1, 2), dtype=np.float64)
    # Float32 rounding of means of at most nine numbers.
    found = jax.jit(adaptive_mean, static_argnums=1)(inputs, size)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("head", HEADS)
def test_the_logits_of_a_head_at_every_place(head, rng):
    network = tiny.WITHOUT_NORM["squeezenet"](axis_name=None)
    model, variables = with_head(network, head)
    images = rng.normal(size=(2, *IMAGE_SHAPE)).astype(np.float32)

    @jax.jit
    def apply(variables, images):
        below = {"params": variables["params"]["features"]}
        return (
            network.apply(below, images, train=False),
            model.apply(variables, images, train=False),
            model.apply(variables, images, method=Classifier.embed),
        )

    features, found, embedded = apply(variables, images)
    # Rows and columns are halved four times; the poolings round up.
    assert features.shape == (2, 3, 4, 32)
    # Most features differ from place to place, so that a mistake would be seen.
    assert np.mean(features.std(axis=(1, 2)) > 0) > 0.3
    of_rows = model.head.apply({"params": variables["params"]["head"]}, features.reshape(-1, 32))
    assert type(found) is type(of_rows)
    for one, rows in zip(jax.tree.leaves(found), jax.tree.leaves(of_rows), strict=True):
        expected = np.maximum(rows, 0).reshape(2, -1, NUM_CLASSES).mean(axis=1)
        # Float32 rounding of sums of 32 products and means of 12 numbers.
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5)
        assert one.dtype == jnp.float32
    expected = np.asarray(features, np.float64).mean(axis=(1, 2))
    np.testing.assert_allclose(embedded, expected, rtol=1e-4, atol=1e-5)


def test_dropout_is_of_training_alone_and_of_each_step(rng):
    model = MLP(axis_name=None, width=400, depth=1, dropout=0.25)
    inputs = tiny.in_float32(rng.normal(size=(8, 6)))
    variables = tiny.in_float32(tiny.random_variables(rng, model, (6,)))
    plain = MLP(axis_name=None, width=400, depth=1)

    def training(seed, step, position):
        key = randomness.dropout_key(seed, jnp.array(step), jnp.array([position, position + 1]))
        outputs, _ = model.apply(
            variables, inputs, train=True, mutable=["batch_stats"], rngs={"dropout": key}
        )
        return np.asarray(outputs)

    expected, _ = plain.apply(variables, inputs, train=True, mutable=["batch_stats"])
    found = training(0, 0, 0)
    kept = found != 0
    positive = np.asarray(expected) > 0
    # Some 1,600 draws: within five deviations of the probability.
    share = 1 - kept[positive].mean()
    assert abs(share - 0.25) < 5 * np.sqrt(0.25 * 0.75 / positive.sum())
    # The others grow by what is lost: one rounding.
    np.testing.assert_allclose(found[kept], np.asarray(expected)[kept] / 0.75, rtol=1e-6)
    np.testing.assert_array_equal(found, training(0, 0, 0))
    for other in (training(1, 0, 0), training(0, 1, 0), training(0, 0, 4)):
        assert (other != found).any()
    np.testing.assert_array_equal(
        model.apply(variables, inputs, train=False), plain.apply(variables, inputs, train=False)
    )
