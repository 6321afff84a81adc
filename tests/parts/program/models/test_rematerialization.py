"""With `config.model.remat` only the ends of blocks are kept, and values and gradients stay."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.parts.program.models import tiny
from train.models.networks.vit import VisionTransformer
from train.models.rematerialization import rematerialized

NETWORKS = {**tiny.FAMILIES, **tiny.WITHOUT_NORM}
# With everything that is random in training.
RANDOM_VIT = functools.partial(
    VisionTransformer,
    patch_size=8,
    grid_size=3,
    width=8,
    depth=2,
    num_heads=2,
    registers=2,
    layer_scale=1.0,
    dropout=0.2,
    stochastic_depth=0.3,
)


def network_of(build, variables, images):
    """The function of the parameters that a step of training differentiates."""
    model = build(axis_name=None)

    def network(params):
        return model.apply(
            {**variables, "params": params},
            images,
            train=True,
            mutable=["batch_stats"],
            rngs={"dropout": jax.random.key(1)},
        )

    return network


def drawn(build, size=32):
    rng = np.random.default_rng(0)
    shape = (size, size, 3)
    images = rng.normal(size=(4, *shape)).astype(np.float32)
    return tiny.in_float32(tiny.random_variables(rng, build(axis_name=None), shape)), images


def kept(network, params):
    """The shapes of what is kept for the backward pass, beside the parameters."""
    pull_back = jax.eval_shape(lambda params: jax.vjp(network, params)[1], params)
    of_parameters = {leaf.shape for leaf in jax.tree.leaves(params)}
    return [leaf.shape for leaf in jax.tree.leaves(pull_back) if leaf.shape not in of_parameters]


def test_only_the_ends_of_blocks_are_kept():
    build = functools.partial(RANDOM_VIT, depth=3)
    variables, images = drawn(build)
    network = network_of(build, variables, images)

    def outputs(network):
        return lambda params: network(params)[0]

    all_kept = kept(outputs(network), variables["params"])
    few = kept(outputs(rematerialized(network)), variables["params"])
    tokens = (4, 16 + 3, 8)
    attention = (4, 2, 16 + 3, 16 + 3)
    assert attention in all_kept
    assert attention not in few
    assert few.count(tokens) == 3
    # The rest is what the network is given: images, and a key of random numbers.
    assert {shape for shape in few if shape != tokens} <= {images.shape, (2,), ()}


@pytest.mark.parametrize("name", ["vit", "basic", "large_densenet"])
def test_values_and_gradients_are_the_same(name):
    build = RANDOM_VIT if name == "vit" else NETWORKS[name]
    variables, images = drawn(build)
    network = network_of(build, variables, images)

    def found(network):
        outputs, pull_back, updates = jax.vjp(network, variables["params"], has_aux=True)
        return outputs, updates, pull_back(jnp.ones_like(outputs))

    plain, again = (
        jax.jit(found, static_argnums=0)(one) for one in (network, rematerialized(network))
    )
    # XLA rounds a value that is computed again in another way, and batch norm of few numbers
    # divides by small deviations. Other random numbers would change most of the values.
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(
            one, other, rtol=1e-3, atol=1e-3 * np.abs(other).max()
        ),
        again,
        plain,
    )
