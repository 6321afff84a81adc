"""Heads whose batch and classes are split over eight devices: as on one device."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from topk_jax import heads, losses

NUM_EXAMPLES, NUM_FEATURES, NUM_CLASSES, K, BLOCK = 8, 5, 32, 12, 3
AXES = ("batch", "classes")
OF_BATCH, OF_HEAD = PartitionSpec("batch"), PartitionSpec(None, "classes")
OF_CLASSES, WHOLE = PartitionSpec("classes"), PartitionSpec()
SPECS = (OF_BATCH, OF_HEAD, OF_CLASSES, OF_BATCH)
# Relative to the largest number. Gradients of weights add up the examples in another order.
ROUNDING = 1e-6


@pytest.fixture
def arrays(rng):
    """Features, weights, biases and labels, with ties over devices and a masked class."""

    def eighths(*shape):
        return jnp.asarray(rng.integers(-16, 17, shape) / 8, jnp.float32)

    same = jnp.array([0, 3, 5, 17, 31])
    weights, bias = eighths(NUM_FEATURES, NUM_CLASSES), eighths(NUM_CLASSES)
    weights, bias = weights.at[:, same].set(weights[:, :1]), bias.at[same].set(2)
    features = eighths(NUM_EXAMPLES, NUM_FEATURES)
    # An example whose classes are all equal.
    return features.at[1].set(0), weights, bias.at[7].set(-jnp.inf), jnp.arange(8) * 4


def mesh_of(sizes, kind=AxisType.Auto):
    return jax.make_mesh(sizes, AXES, axis_types=(kind,) * 2)


def results(*arrays, name=None):
    """Losses, best classes with their scores, and the gradients of a weighted sum of them."""

    def total(features, weights, bias, labels):
        head = heads.LinearHead(weights, bias)
        options = {"block_size": BLOCK, "class_axis_name": name}
        entropies = heads.cross_entropy(features, head, labels, **options)
        values, classes = heads.top_k(features, head, k=K, **options)
        of_ranks = jnp.arange(1.0, K + 1)[None]
        focal = losses.focal(heads.scores(features, head), labels, gamma=1.0, class_axis_name=name)
        return entropies.sum() + (values * of_ranks).sum() + focal.sum(), (
            entropies,
            focal,
            values,
            classes,
        )

    return jax.grad(total, argnums=(0, 1, 2), has_aux=True)(*arrays)


def assert_close(found, wanted):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        atol = ROUNDING * np.abs(other).max()
        np.testing.assert_allclose(np.asarray(one), other, rtol=0, atol=atol)


def assert_same(found, arrays):
    assert_close(found, jax.jit(results)(*arrays))


@pytest.mark.parametrize("sizes", [(1, 8), (2, 4)])
def test_split_classes_in_shard_map(sizes, arrays):
    mapped = jax.shard_map(
        functools.partial(results, name="classes"),
        mesh=mesh_of(sizes),
        in_specs=SPECS,
        out_specs=((OF_BATCH, OF_HEAD, OF_CLASSES), OF_BATCH),
    )
    assert_same(jax.jit(mapped)(*arrays), arrays)


def test_gradients_of_a_map_without_types(arrays):
    *given, labels = arrays

    def losses_of(features, weights, bias, name=None):
        head = heads.LinearHead(weights, bias)
        return heads.cross_entropy(features, head, labels, class_axis_name=name)

    mapped = jax.shard_map(
        functools.partial(losses_of, name="classes"),
        mesh=mesh_of((1, 8)),
        in_specs=(WHOLE, OF_HEAD, OF_CLASSES),
        out_specs=WHOLE,
        check_vma=False,
    )
    found, wanted = (
        jax.grad(lambda *given, one=one: one(*given).sum(), argnums=(0, 1, 2))(*given)
        for one in (mapped, losses_of)
    )
    assert_close(found, wanted)


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [((2, 4), AxisType.Explicit), ((1, 8), AxisType.Explicit), ((2, 4), AxisType.Auto)],
    ids=str,
)
def test_split_by_the_type_of_the_arrays(sizes, kind, arrays):
    mesh = mesh_of(sizes, kind)
    placed = [
        jax.device_put(array, NamedSharding(mesh, spec))
        for array, spec in zip(arrays, SPECS, strict=True)
    ]
    with jax.set_mesh(mesh):
        slopes, found = jax.jit(results)(*placed)
    assert_same((slopes, found), arrays)
    if kind == AxisType.Explicit:
        assert tuple(slope.sharding.spec[-1] for slope in slopes) == (None, "classes", "classes")
        for array in found:
            assert array.sharding.is_equivalent_to(NamedSharding(mesh, OF_BATCH), array.ndim)


def test_only_the_batch_is_split_along_two_axes_and_outside_of_jit(arrays):
    features, weights, bias, labels = arrays
    head, shape = heads.LinearHead(weights, bias), (2, 4)
    with jax.set_mesh(mesh_of(shape, AxisType.Explicit)):
        split = jax.reshard(features.reshape(*shape, -1), PartitionSpec(*AXES))
        found = heads.cross_entropy(split, head, np.asarray(labels).reshape(shape))
    assert found.sharding.spec == PartitionSpec(*AXES)
    wanted = heads.cross_entropy(features, head, labels)
    np.testing.assert_allclose(np.asarray(found).ravel(), wanted, rtol=1e-6)


@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto], ids=str)
def test_scores_are_split_like_the_weights_and_nothing_is_sent(kind, arrays):
    features, weights, bias, _ = arrays
    mesh = mesh_of((2, 4), kind)
    placed = [
        jax.device_put(array, NamedSharding(mesh, spec))
        for array, spec in zip(arrays[:3], SPECS, strict=False)
    ]

    def scores(features, weights, bias):
        return heads.scores(features, heads.LinearHead(weights, bias))

    with jax.set_mesh(mesh):
        compiled = jax.jit(scores).lower(*placed).compile()
        found = compiled(*placed)
    assert found.sharding.spec == PartitionSpec("batch", "classes")
    assert "all-" not in compiled.as_text()
    np.testing.assert_allclose(found, scores(features, weights, bias), rtol=2e-6, atol=2e-6)


def best_in_shard_map(specs, name, features, weights):
    """The best classes of all devices along one axis."""

    def of_device(features, weights):
        head = heads.LinearHead(weights)
        return heads.top_k(features, head, k=2, block_size=BLOCK, class_axis_name=name)

    mesh = jax.make_mesh((8,), ("classes",), axis_types=(AxisType.Auto,))
    return jax.shard_map(of_device, mesh=mesh, in_specs=specs, out_specs=WHOLE)(features, weights)


def test_a_nan_on_one_device_is_nan_on_all(arrays):
    features, weights, *_ = arrays
    found = jax.jit(functools.partial(best_in_shard_map, (WHOLE, OF_HEAD), "classes"))
    values, classes = found(features.at[2, 0].set(jnp.nan), weights)
    np.testing.assert_array_equal(np.isnan(values).all(axis=1), np.arange(8) == 2)
    np.testing.assert_array_equal((classes == -1).all(axis=1), np.arange(8) == 2)
    values, classes = found(features, weights.at[0, 30].set(jnp.nan))
    assert np.isnan(values).all()
    assert (classes == -1).all()


@pytest.mark.parametrize(
    ("specs", "name"),
    [
        ((WHOLE, OF_HEAD), None),
        ((WHOLE, OF_HEAD), "items"),
        ((WHOLE, WHOLE), "classes"),
        ((OF_CLASSES, OF_HEAD), "classes"),
    ],
)
def test_wrong_names_of_the_axis_are_refused(specs, name, arrays):
    with pytest.raises(ValueError, match="class_axis_name"):
        best_in_shard_map(specs, name, *arrays[:2])


def test_examples_and_classes_along_one_axis_are_refused(arrays):
    features, weights, *_ = arrays
    with jax.set_mesh(jax.make_mesh((8,), ("classes",))):
        head = heads.LinearHead(jax.reshard(weights, OF_HEAD))
        with pytest.raises(ValueError, match="class_axis_name"):
            heads.top_k(jax.reshard(features, OF_CLASSES), head, k=2)
