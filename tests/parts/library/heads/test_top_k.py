"""The best classes of a head over blocks of classes, beside the reference of all scores."""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from tests import reference
from tests.parts import lowered
from tests.parts.library.heads.test_heads import (
    BLOCK,
    NUM_CLASSES,
    NUM_EXAMPLES,
    NUM_FEATURES,
    assert_close,
    drawn,
    head_of,
    scores_of,
)
from topk_jax import heads

each_head = pytest.mark.parametrize("kind", ["linear", "cosine"])


def shares(k):
    """What each of the k scores of an example counts: a gradient then shows their order."""
    return np.arange(1.0, k + 1)


def weighted(kind, k, block_size, features, weights, bias, name=None):
    """A sum of the scores with their shares, and the result."""
    found = heads.top_k(
        features, head_of(kind, weights, bias), k=k, block_size=block_size, class_axis_name=name
    )
    # A masked class has -inf.
    finite = jnp.where(jnp.isneginf(found[0]), 0, found[0])
    return (finite * jnp.asarray(shares(k), finite.dtype)[None]).sum(), found


@functools.cache
def compiled(kind, k, block_size=BLOCK):
    """The result, and the gradients of the weighted sum by features, weights and bias."""
    function = functools.partial(weighted, kind, k, block_size)
    return jax.jit(jax.grad(function, argnums=(0, 1, 2), has_aux=True))


def expected(kind, k, *arrays):
    """The same in float64."""
    scores, pulled_back = scores_of(kind, *arrays)
    slope = reference.heads.largest_gradient(scores, shares(k), k)
    return pulled_back(slope), reference.heads.largest(scores, k)


def assert_found(found, wanted):
    """The scores up to rounding, and exactly the classes."""
    assert_close(found[0], wanted[0])
    assert found[1].dtype == jnp.int32
    np.testing.assert_array_equal(found[1], wanted[1])


@each_head
@pytest.mark.parametrize(
    ("k", "block_size"), [(3, BLOCK), (1, 1), (3, None), (12, BLOCK), (NUM_CLASSES, BLOCK)]
)
def test_scores_classes_and_gradients_are_those_of_all_scores(kind, k, block_size, rng):
    """Blocks of 8 do not divide the classes, and have fewer than 12."""
    *arrays, _ = drawn(rng)
    slopes, found = compiled(kind, k, block_size)(*arrays)
    wanted_slopes, wanted = expected(kind, k, *arrays)
    assert_found(found, wanted)
    assert_close(slopes, wanted_slopes)


@pytest.mark.parametrize("block_size", [3, BLOCK])
def test_equal_scores_rank_by_the_class_over_blocks(block_size, rng):
    features, weights, *_ = drawn(rng)
    # Three vectors for all classes.
    weights = weights[:, jnp.arange(NUM_CLASSES) % 3]
    # All scores of a user without features are 0.
    arrays = (features.at[2].set(0), weights, jnp.zeros(NUM_CLASSES))
    slopes, found = compiled("linear", 12, block_size)(*arrays)
    wanted_slopes, wanted = expected("linear", 12, *arrays)
    assert_found(found, wanted)
    assert_close(slopes, wanted_slopes)


def test_0_and_minus_0_are_equal():
    head = heads.LinearHead(jnp.array([[0.0, -0.0, 0.0, -1.0]]), jnp.array([-0.0, 0.0, -0.0, 0.0]))
    found = jax.jit(lambda features: heads.top_k(features, head, k=4, block_size=2))
    for feature in (1.0, -0.0):
        values, classes = found(jnp.array([[feature]]))
        np.testing.assert_array_equal(classes, [[0, 1, 2, 3]])
        assert not np.signbit(values[:, :3]).any()


def test_masked_classes_come_last_and_have_no_slope(rng):
    features, weights, *_ = drawn(rng)
    bias = jnp.full(NUM_CLASSES, -jnp.inf).at[jnp.array([9, 20])].set(0)
    slopes, (values, classes) = compiled("linear", 12)(features, weights, bias)
    assert np.isfinite(values[:, :2]).all()
    assert np.isneginf(values[:, 2:]).all()
    # A set has all k classes, as in `sets.top_k_set`.
    np.testing.assert_array_equal(classes[:, 2:], [[0, 1, 2, 3, 4, 5, 6, 7, 8, 10]] * NUM_EXAMPLES)
    assert all(np.isfinite(slope).all() for slope in slopes)
    assert (np.asarray(slopes[1])[:, np.isneginf(bias)] == 0).all()


def test_nan_features_are_nan_for_their_example_alone(rng):
    features, weights, bias, _ = drawn(rng)
    clean_slopes, clean = compiled("linear", 3)(features, weights, bias)
    slopes, found = compiled("linear", 3)(features.at[2, 3].set(-jnp.nan), weights, bias)
    others = np.arange(NUM_EXAMPLES) != 2
    assert np.isnan(found[0][2]).all()
    assert (found[1][2] == -1).all()
    assert np.isnan(slopes[0][2]).all()
    for one, other in zip(found, clean, strict=True):
        np.testing.assert_array_equal(one[others], other[others])
    np.testing.assert_array_equal(slopes[0][others], clean_slopes[0][others])


@each_head
def test_a_nan_or_infinity_of_any_class_is_nan_for_all_examples(kind, rng):
    features, weights, bias, _ = drawn(rng)
    # A class in the first block, and one in the last; a selection need not find either.
    for hurt, biases in (
        (weights.at[0, 1].set(-jnp.nan), bias),
        (weights.at[0, 20].set(jnp.nan), bias),
        *([(weights, bias.at[7].set(jnp.inf))] if kind == "linear" else []),
    ):
        _, (values, classes) = compiled(kind, 3)(features, hurt, biases)
        assert np.isnan(values).all()
        assert (classes == -1).all()


def test_half_precision(rng):
    features, weights, bias, _ = drawn(rng)
    arrays = (features.astype(jnp.float16), weights.astype(jnp.bfloat16), bias)
    slopes, found = compiled("linear", 3)(*arrays)
    assert found[0].dtype == jnp.float32
    assert [slope.dtype for slope in slopes] == [jnp.float16, jnp.bfloat16, jnp.float32]
    # Eighths are exact in half precision.
    wanted_slopes, wanted = expected("linear", 3, features, weights, bias)
    assert_found(found, wanted)
    # Computed and added up in float32: only the result is rounded.
    assert_close(slopes, wanted_slopes, float(jnp.finfo(jnp.bfloat16).eps))


def test_float64_stays(rng):
    with jax.enable_x64(True):
        # No exact scores, so that roundings are seen.
        arrays = tuple(array.astype(jnp.float64) / 3 for array in drawn(rng)[:3])
        slopes, found = compiled("cosine", 3)(*arrays)
        assert found[0].dtype == slopes[1].dtype == jnp.float64
        assert found[1].dtype == jnp.int32
        wanted_slopes, wanted = expected("cosine", 3, *arrays)
        # Some roundings of 1e-16 each.
        assert_close(found[0], wanted[0], 1e-12)
        assert_close(slopes, wanted_slopes, 1e-12)


def test_a_batch_of_any_shape_and_vmap(rng):
    features, weights, bias, _ = drawn(rng)
    _, wanted = compiled("linear", 3)(features, weights, bias)

    @jax.jit
    def shaped(features, biases):
        def best(features, bias):
            return heads.top_k(features, heads.LinearHead(weights, bias), k=3, block_size=BLOCK)

        # One head for each of the two parts.
        mapped = jax.vmap(best)(features, biases)
        return best(features, bias), mapped, best(features[0, 0], bias), best(features[:0], bias)

    *grids, single, empty = shaped(
        features.reshape(2, 3, NUM_FEATURES), jnp.broadcast_to(bias, (2, NUM_CLASSES))
    )
    for index, whole in enumerate(wanted):
        for grid in grids:
            np.testing.assert_array_equal(grid[index], whole.reshape(2, 3, 3))
        np.testing.assert_array_equal(single[index], whole[0])
        assert empty[index].shape == (0, 3, 3)


def test_lowered_for_any_number_of_examples_on_each_platform(rng):
    features, weights, bias, _ = drawn(rng)
    (size,) = jax.export.symbolic_shape("n")
    shapes = (jax.ShapeDtypeStruct((size, NUM_FEATURES), jnp.float32), weights, bias)
    platforms = ("cpu", *lowered.PLATFORMS)
    program = lowered.lowered(compiled.__wrapped__("linear", 3), *shapes, platforms=platforms)
    _, found = program.call(features, weights, bias)
    assert_found(found, expected("linear", 3, features, weights, bias)[1])


def test_accelerators_choose_the_same_classes(rng, monkeypatch):
    features, weights, bias, _ = drawn(rng)
    # Ties over blocks.
    arrays = (features, weights[:, jnp.arange(NUM_CLASSES) % 3], bias)
    monkeypatch.setattr(
        jax.lax, "platform_dependent", lambda *arrays, default, **_: default(*arrays)
    )
    # Another function, or the program for the CPU would be taken.
    elsewhere = compiled.__wrapped__("linear", 12)
    assert_found(elsewhere(*arrays)[1], expected("linear", 12, *arrays)[1])


def test_the_scores_of_all_classes_are_never_in_memory():
    num_examples, k = 64, 20

    def temporary(num_classes):
        features = jax.ShapeDtypeStruct((num_examples, 16), jnp.float32)
        weights = jax.ShapeDtypeStruct((16, num_classes), jnp.float32)
        best = jax.jit(
            lambda features, weights: heads.top_k(
                features, heads.LinearHead(weights), k=k, block_size=2**20 // num_examples
            )
        )
        return best.lower(features, weights).compile().memory_analysis().temp_size_in_bytes

    # All scores have 25 MB and 77 MB; a block and what XLA reads it from have 4 MB each.
    few = temporary(100_000)
    assert few < 10 * 2**20
    assert temporary(300_000) == few


# With 8 devices of 4 classes, in blocks of 3, or 4 devices of 8: one does not have 12.
NUM_SPLIT, SPLIT_BLOCK = 32, 3
AXES = ("batch", "classes")
OF_BATCH, OF_HEAD, OF_CLASSES = (
    PartitionSpec("batch"),
    PartitionSpec(None, "classes"),
    PartitionSpec("classes"),
)


def split_arrays(kind, rng):
    """Features, weights and biases; for a linear head with ties over devices."""

    def eighths(*shape):
        return jnp.asarray(rng.integers(-16, 17, shape) / 8, jnp.float32)

    features, weights, bias = (
        eighths(8, NUM_FEATURES),
        eighths(NUM_FEATURES, NUM_SPLIT),
        eighths(32),
    )
    if kind == "linear":
        same = jnp.array([0, 3, 5, 17, 31])
        weights, bias = weights.at[:, same].set(weights[:, :1]), bias.at[same].set(2)
        # All classes are equal.
        features = features.at[1].set(0)
    return features, weights, bias


def gradients(kind, k, name=None):
    function = functools.partial(weighted, kind, k, SPLIT_BLOCK, name=name)
    return jax.grad(function, argnums=(0, 1, 2), has_aux=True)


def assert_split(kind, k, arrays, results):
    slopes, found = results
    scores, _ = scores_of(kind, *arrays)
    assert_found(found, reference.heads.largest(scores, k))
    # That of one device is compared with the reference above.
    assert_close(slopes, jax.jit(gradients(kind, k))(*arrays)[0])


@pytest.mark.parametrize(
    ("sizes", "kind", "k"), [((1, 8), "linear", NUM_SPLIT), ((2, 4), "cosine", 12)]
)
def test_split_classes_in_shard_map(sizes, kind, k, rng):
    arrays = split_arrays(kind, rng)
    mapped = jax.shard_map(
        gradients(kind, k, "classes"),
        mesh=jax.make_mesh(sizes, AXES, axis_types=(AxisType.Auto,) * 2),
        in_specs=(OF_BATCH, OF_HEAD, OF_CLASSES),
        out_specs=((OF_BATCH, OF_HEAD, OF_CLASSES), OF_BATCH),
    )
    assert_split(kind, k, arrays, jax.jit(mapped)(*arrays))


@pytest.mark.parametrize(
    ("sizes", "axis_kind", "kind", "k"),
    [
        ((2, 4), AxisType.Explicit, "linear", 12),
        ((1, 8), AxisType.Explicit, "cosine", 2),
        ((2, 4), AxisType.Auto, "linear", 12),
    ],
    ids=str,
)
def test_split_classes_by_the_type_of_the_arrays(sizes, axis_kind, kind, k, rng):
    arrays = split_arrays(kind, rng)
    mesh = jax.make_mesh(sizes, AXES, axis_types=(axis_kind,) * 2)
    specs = (OF_BATCH, OF_HEAD, OF_CLASSES)
    placed = [
        jax.device_put(array, NamedSharding(mesh, spec))
        for array, spec in zip(arrays, specs, strict=True)
    ]
    with jax.set_mesh(mesh):
        slopes, found = jax.jit(gradients(kind, k))(*placed)
    assert_split(kind, k, arrays, (slopes, found))
    for array in found:
        # The same on all devices that share the classes.
        assert array.sharding.is_equivalent_to(NamedSharding(mesh, OF_BATCH), 2)
    if axis_kind == AxisType.Explicit:
        assert tuple(slope.sharding.spec[-1] for slope in slopes) == (None, "classes", "classes")


def in_shard_map(specs, name, features, weights):
    """The scores of all devices along one axis."""

    def of_device(features, weights):
        head = heads.LinearHead(weights)
        return heads.top_k(features, head, k=2, block_size=3, class_axis_name=name)

    mesh = jax.make_mesh((8,), ("classes",), axis_types=(AxisType.Auto,))
    return jax.shard_map(of_device, mesh=mesh, in_specs=specs, out_specs=PartitionSpec())(
        features, weights
    )


def test_a_nan_on_one_device_is_nan_on_all(rng):
    features, weights, _ = split_arrays("linear", rng)
    found = jax.jit(functools.partial(in_shard_map, (PartitionSpec(), OF_HEAD), "classes"))
    values, classes = found(features.at[2, 0].set(jnp.nan), weights)
    np.testing.assert_array_equal(np.isnan(values).all(axis=1), np.arange(8) == 2)
    np.testing.assert_array_equal((classes == -1).all(axis=1), np.arange(8) == 2)
    values, classes = found(features, weights.at[0, 30].set(jnp.nan))
    assert np.isnan(values).all()
    assert (classes == -1).all()


@pytest.mark.parametrize(
    ("specs", "name"),
    [
        ((PartitionSpec(), OF_HEAD), None),
        ((PartitionSpec(), OF_HEAD), "items"),
        ((PartitionSpec(), PartitionSpec()), "classes"),
        ((OF_CLASSES, OF_HEAD), "classes"),
    ],
)
def test_wrong_names_of_the_axis_are_refused(specs, name, rng):
    with pytest.raises(ValueError, match="class_axis_name"):
        in_shard_map(specs, name, *split_arrays("linear", rng)[:2])


def test_other_splits_are_refused(rng):
    features, weights, _ = split_arrays("linear", rng)
    with jax.set_mesh(jax.make_mesh((8,), ("classes",))):
        head = heads.LinearHead(jax.reshard(weights, OF_HEAD))
        with pytest.raises(ValueError, match="features"):
            heads.top_k(jax.reshard(features, OF_CLASSES), head, k=2)
        turned = heads.LinearHead(jax.reshard(weights.T, OF_CLASSES))
        with pytest.raises(ValueError, match=r"head\.weights"):
            heads.top_k(jnp.ones((2, NUM_SPLIT)), turned, k=2)
