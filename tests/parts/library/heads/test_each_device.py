"""Losses of heads whose batch is split over eight devices, along Explicit and Auto axes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from tests.rows import rows
from topk_jax import heads

NUM_EXAMPLES, NUM_FEATURES, NUM_CLASSES, BLOCK = 16, 5, 21, 8
MARGINS = np.linspace(0.5, 2.0, NUM_CLASSES, dtype=np.float32)
KEY = jax.random.key(7)
# Relative to the largest number. Gradients of weights add up the examples in another order.
ROUNDING = 1e-6


def noised(features, head, labels, key=KEY):
    return heads.noised_top_k_hinge(
        features,
        head,
        labels,
        k=3,
        epsilon=0.5,
        num_samples=4,
        key=key,
        margins=MARGINS,
        block_size=BLOCK,
    )


LOSSES = {
    "cross_entropy": lambda *arrays: heads.cross_entropy(*arrays, block_size=BLOCK),
    "top_k_hinge": lambda *arrays: heads.top_k_hinge(*arrays, k=3, block_size=BLOCK),
    "convex_top_k_hinge": lambda *arrays: heads.convex_top_k_hinge(*arrays, k=3, block_size=BLOCK),
    "calibrated_top_k_hinge": lambda *arrays: heads.calibrated_top_k_hinge(*arrays, k=3),
    "noised_top_k_hinge": noised,
    "noised_top_k_hinge, keys": functools.partial(noised, key=jax.random.split(KEY, (2, 8))),
    "average_k": lambda features, head, labels: heads.average_k(
        features, head, head, labels, k=2.5, alpha=0.7, block_size=BLOCK
    ),
}
HEADS = {"linear": heads.LinearHead, "cosine": heads.CosineHead}


@pytest.fixture
def arrays(rng):
    features = rng.normal(size=(2, 8, NUM_FEATURES)).astype(np.float32)
    weights = rng.normal(size=(NUM_FEATURES, NUM_CLASSES)).astype(np.float32)
    labels = rng.integers(NUM_CLASSES, size=(2, 8), dtype=np.int32)
    return features, weights, labels


def mesh_of(kind):
    return jax.make_mesh((2, 4), ("rows", "columns"), axis_types=(kind, kind))


SPLIT = PartitionSpec("rows", "columns")


def test_every_loss_is_here():
    others = {"LinearHead", "CosineHead", "scores", "top_k"}
    assert {name.partition(",")[0] for name in LOSSES} == {*heads.__all__} - others


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    ("head", "kind"),
    rows(
        [("linear", AxisType.Explicit)],
        [("cosine", AxisType.Explicit), ("linear", AxisType.Auto), ("cosine", AxisType.Auto)],
    ),
    ids=str,
)
def test_values_and_gradients_are_those_of_one_device(name, head, kind, arrays):
    def weighted(features, weights, labels):
        values = LOSSES[name](features, HEADS[head](weights), labels)
        return (values * jnp.arange(1.0, values.size + 1).reshape(values.shape)).sum(), values

    step = jax.jit(jax.value_and_grad(weighted, argnums=(0, 1), has_aux=True))
    features, weights, labels = arrays
    expected = step(features, weights, labels)
    mesh = mesh_of(kind)
    split = NamedSharding(mesh, SPLIT)
    with jax.set_mesh(mesh):
        found = step(jax.device_put(features, split), weights, jax.device_put(labels, split))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=ROUNDING * np.abs(other).max())
    (_, values), (slopes, _) = found
    assert slopes.sharding.is_equivalent_to(split, 3)
    assert values.ndim == 0 or values.sharding.is_equivalent_to(split, 2)


def test_split_heads_and_features_are_refused(arrays):
    features, weights, labels = arrays
    mesh = mesh_of(AxisType.Explicit)
    weights = jax.device_put(weights[:, :20], NamedSharding(mesh, PartitionSpec(None, "columns")))
    with pytest.raises(ValueError, match=r"head.weights .* heads.scores"):
        heads.cross_entropy(features, heads.LinearHead(weights), labels)
    features = jax.device_put(
        np.ones((2, 8, 4), np.float32), NamedSharding(mesh, PartitionSpec("rows", None, "columns"))
    )
    with pytest.raises(ValueError, match="features"):
        heads.cross_entropy(features, heads.LinearHead(np.ones((4, 9), np.float32)), labels)
