"""Networks that take features: none that is hidden, or a multilayer perceptron."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from tests.parts.program.models import tiny
from train.models import build_model
from train.models.networks.mlp import MLP
from train.training import randomness


def build(name, **options):
    return build_model(
        name,
        num_classes=5,
        head="linear",
        axis_name=None,
        half_precision=False,
        options=options,
    )


class EarlierMLP(nn.Module):
    """The network before it had options."""

    @nn.compact
    def __call__(self, images, *, train):
        hidden = images.reshape(images.shape[0], -1)
        for _ in range(2):
            hidden = nn.Dense(256, use_bias=False, dtype=jnp.float32)(hidden)
            hidden = nn.BatchNorm(use_running_average=not train, momentum=0.9, epsilon=1e-5)(hidden)
            hidden = nn.relu(hidden)
        return hidden.astype(jnp.float32)


def test_without_options_the_mlp_is_that_of_earlier_runs(key, rng):
    images = rng.normal(size=(4, 3, 3, 1)).astype(np.float32)
    networks = MLP(axis_name=None), EarlierMLP()
    found, expected = (
        jax.jit(lambda key, one=one: one.init(key, images, train=True))(key) for one in networks
    )
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    for train in (True, False):
        outputs = [
            one.apply(expected, images, train=train, mutable=["batch_stats"]) for one in networks
        ]
        jax.tree.map(np.testing.assert_array_equal, *outputs)


def test_width_and_depth_are_those_of_the_hidden_layers():
    _, variables = tiny.shapes(build("mlp", width=7, depth=3), (6,))
    features = variables["params"]["features"]
    kernels = [features[f"Dense_{index}"]["kernel"].shape for index in range(3)]
    assert kernels == [(6, 7), (7, 7), (7, 7)]
    assert "Dense_3" not in features
    assert variables["params"]["head"]["Dense_0"]["kernel"].shape == (7, 5)


@pytest.mark.parametrize("shape", [(6,), (3, 2, 1)])
def test_the_linear_network_is_its_head(shape, rng):
    model = build("linear")
    _, variables = tiny.shapes(model, shape)
    assert set(variables) == {"params"}
    assert set(variables["params"]) == {"head"}
    kernel, bias = rng.normal(size=(6, 5)), rng.normal(size=5)
    inputs = rng.normal(size=(4, *shape))
    params = {"head": {"Dense_0": {"kernel": kernel, "bias": bias}}}
    logits = model.apply(*tiny.in_float32(({"params": params}, inputs)), train=True)
    # Float32 rounding of sums of six products.
    np.testing.assert_allclose(logits, inputs.reshape(4, 6) @ kernel + bias, rtol=1e-4, atol=1e-5)


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
