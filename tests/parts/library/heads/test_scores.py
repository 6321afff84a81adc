"""The scores of heads, on one device and with the classes on several."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from topk_jax import heads

NUM_CLASSES = 16
AXES = {"features": ("batch", None), "weights": (None, "classes"), "bias": ("classes",)}


def draw(rng):
    return {
        "features": rng.normal(size=(8, 5)).astype(np.float32),
        "weights": rng.normal(size=(5, NUM_CLASSES)).astype(np.float32),
        "bias": rng.normal(size=NUM_CLASSES).astype(np.float32),
    }


def head_of(kind, arrays):
    if kind == "linear":
        return heads.LinearHead(arrays["weights"], arrays["bias"])
    return heads.CosineHead(arrays["weights"], 3.0)


@pytest.mark.parametrize("axis_kind", [AxisType.Explicit, AxisType.Auto], ids=str)
@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_scores_are_split_like_the_weights_and_nothing_is_sent(kind, axis_kind, rng):
    arrays = draw(rng)
    mesh = jax.make_mesh((2, 4), ("batch", "classes"), axis_types=(axis_kind,) * 2)
    placed = {
        name: jax.device_put(array, NamedSharding(mesh, PartitionSpec(*AXES[name])))
        for name, array in arrays.items()
    }

    def scores(arrays):
        return heads.scores(arrays["features"], head_of(kind, arrays))

    with jax.set_mesh(mesh):
        compiled = jax.jit(scores).lower(placed).compile()
        found = compiled(placed)
    assert found.sharding.spec == PartitionSpec("batch", "classes")
    assert "all-" not in compiled.as_text()
    np.testing.assert_allclose(found, scores(arrays), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("length", [2.0**-30, 1.0, 2.0**60, 2.0**66, 2.0**100])
def test_cosines_do_not_depend_on_lengths(length):
    direction = jnp.array([[0.6, 0.8]])

    def loss(features, weights):
        return heads.cross_entropy(features, heads.CosineHead(weights, 10.0), jnp.array([0])).sum()

    expected = jax.value_and_grad(loss)(direction, jnp.eye(2))
    value, gradient = jax.value_and_grad(loss)(length * direction, length * jnp.eye(2))
    # The same numbers, times powers of two.
    np.testing.assert_array_equal(value, expected[0])
    # Below the smallest normal number, XLA on the CPU has 0.
    atol = length * float(jnp.finfo(jnp.float32).tiny)
    np.testing.assert_allclose(np.float64(gradient) * length, expected[1], rtol=0, atol=atol)
