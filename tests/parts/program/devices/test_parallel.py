"""A state on devices that share the classes, its way back, and devices that cannot share them."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from train.devices import parallel
from train.devices.class_axis import ClassAxis, is_of_classes
from train.devices.parallel import CLASS_AXIS_NAME, MeshDevices, PmapDevices
from train.foundation.errors import UserError
from train.training.losses import LOSSES
from train.training.steps import make_eval_step

NUM_CLASSES = 16


def drawn():
    """A state; the layer below its head may have one unit for each class."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    params = {
        "features": {"Dense_0": {"kernel": normal(3, NUM_CLASSES)}},
        "head": {"Dense_0": {"kernel": normal(NUM_CLASSES, NUM_CLASSES), "bias": normal(16)}},
    }
    moments = ({"head": {"class_vectors": normal(5, NUM_CLASSES), "log_scale": normal()}},)
    return {"params": params, "moments": moments, "loss": {"margins": normal(16)}, "step": 3}


def assert_same(found, expected):
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("class_devices", [1, 2, 8])
def test_a_state_on_one_mesh_goes_to_any_other(class_devices):
    state = drawn()
    devices = MeshDevices(class_devices, NUM_CLASSES)
    there = devices.replicate(state)
    saved = devices.to_host(there)
    assert_same(saved, state)
    for other in (MeshDevices(4, NUM_CLASSES), PmapDevices()):
        assert_same(other.to_host(other.replicate(saved)), state)
    own = NUM_CLASSES // class_devices
    params = there["params"]
    shapes = {
        (16, own): params["head"]["Dense_0"]["kernel"],
        (own,): there["loss"]["margins"],
        (5, own): there["moments"][0]["head"]["class_vectors"],
        (3, NUM_CLASSES): params["features"]["Dense_0"]["kernel"],
    }
    for shape, array in shapes.items():
        assert {shard.data.shape for shard in array.addressable_shards} == {shape}


@pytest.mark.parametrize("kind", parallel.KINDS)
def test_a_state_that_is_saved_is_not_the_memory_of_the_devices(kind):
    state = {"step": np.zeros(8, np.float32)}
    devices = parallel.find_devices(kind, class_devices=2, num_classes=NUM_CLASSES)
    there = devices.replicate(state)
    state["step"][:] = 1
    saved = devices.to_host(there)
    saved["step"][:] = 2
    np.testing.assert_array_equal(devices.to_host(there)["step"], np.zeros(8))


@pytest.mark.parametrize("kind", parallel.KINDS)
def test_a_step_is_traced_once(kind):
    """Each trace and compilation of a training step may take a minute."""
    devices = parallel.find_devices(kind, class_devices=2, num_classes=NUM_CLASSES)
    traces = []

    def step(state, hyperparameters, batch):
        traces.append(kind)
        return jax.tree.map(lambda leaf: leaf + 1, state), {"loss": batch["loss"].sum()}

    compiled = devices.compile_train_step(step)
    state = devices.replicate(drawn())
    hyperparameters = devices.replicate({"learning_rate": np.float32(0.1)})
    for _ in range(3):
        batch = devices.split({"loss": np.ones(16, np.float32)})
        state, _ = compiled(state, hyperparameters, batch)
    assert len(traces) == 1
    # After a run was resumed.
    state, _ = compiled(devices.replicate(devices.to_host(state)), hyperparameters, batch)
    assert len(traces) == 1
    assert devices.to_host(state)["step"] == 3 + 4


@pytest.mark.parametrize("kind", parallel.KINDS)
def test_an_evaluation_of_several_labels_of_an_example(kind, rng):
    devices = parallel.find_devices(kind, class_devices=2, num_classes=NUM_CLASSES)
    class_axis = devices.class_axis
    rows, kernel = (
        rng.normal(size=shape).astype(np.float32) for shape in ((8, 4), (4, NUM_CLASSES))
    )
    params = {"head": {"kernel": kernel}}
    step = make_eval_step(
        lambda variables, rows, train: rows @ variables["params"]["head"]["kernel"],
        lambda _: LOSSES["cross_entropy"].objective(
            {}, {}, axis_name=parallel.AXIS_NAME, class_axis_name=class_axis.name, scores="softmax"
        ),
        normalize=lambda rows: rows,
        class_axis=class_axis,
        gather=devices.parameter_axis(params).gather,
    )
    classes = np.stack([rng.choice(NUM_CLASSES, 3, replace=False) for _ in rows]).astype(np.int32)
    batch = {
        "images": rows,
        "labels": classes[:, 0],
        "classes": classes,
        "present": np.ones_like(classes, bool),
    }
    found = devices.join(
        devices.compile_eval_step(step)(
            *(devices.replicate(part) for part in (params, {}, {"loss": {}})),
            devices.split(batch),
        )
    )
    logits = rows @ kernel
    ranks = (logits[:, None] > np.take_along_axis(logits, classes, 1)[:, :, None]).sum(axis=2)
    np.testing.assert_array_equal(found["class_ranks"], ranks)
    np.testing.assert_array_equal(found["ranks"], ranks[:, 0])
    assert found["scores"].shape == logits.shape
    assert found["loss"].shape == (8,)


def test_a_finished_run_uses_as_many_devices_as_there_are():
    """If 12 devices shared the classes of a run, 8 devices share them in groups of 4."""
    assert MeshDevices(12, 24).class_axis == ClassAxis(CLASS_AXIS_NAME, 4, 6)
    assert MeshDevices(3, 24).class_axis == ClassAxis()


@pytest.mark.parametrize(("num_classes", "size"), [(24, 8), (1_000_000, 8), (12, 4), (7, 1)])
def test_without_a_number_as_many_devices_as_possible_share_the_classes(num_classes, size):
    assert MeshDevices(None, num_classes).class_axis.size == size


def test_devices_that_cannot_share_equally_are_refused():
    parallel.check_class_devices(4)
    parallel.check_class_devices(None)
    with pytest.raises(UserError, match="must divide the 8 devices: one of 1, 2, 4, 8; got 3"):
        parallel.check_class_devices(3)
    parallel.check_batch_size(6, 1, class_devices=4)
    with pytest.raises(UserError, match="a multiple of the 2 groups of 4 devices; got 5"):
        parallel.check_batch_size(5, 1, class_devices=4)


def test_the_classes_are_split_in_the_head_alone():
    for part, is_split in (("features", False), ("norm", False), ("head", True)):
        path = (jax.tree_util.GetAttrKey("params"), *map(jax.tree_util.DictKey, (part, "scale")))
        # As many features as classes.
        assert is_of_classes(path, np.ones(NUM_CLASSES), NUM_CLASSES) is is_split


def test_what_a_step_does_along_the_axis_of_classes():
    state = drawn()
    axis = MeshDevices(4, NUM_CLASSES).class_axis

    def step(params, gradients, weights, labels):
        return (
            axis.norm(params),
            axis.of_labels(weights, labels),
            axis.of_all_classes(gradients)["features"]["Dense_0"]["kernel"],
        )

    split = PartitionSpec(None, CLASS_AXIS_NAME)
    of_head = {"kernel": split, "bias": PartitionSpec(CLASS_AXIS_NAME)}
    specs = {"features": PartitionSpec(), "head": {"Dense_0": of_head}}
    norm, weights, gradient = jax.shard_map(
        step,
        mesh=Mesh(np.array(jax.devices()[:4]), (CLASS_AXIS_NAME,)),
        in_specs=(specs, specs, PartitionSpec(CLASS_AXIS_NAME), PartitionSpec()),
        out_specs=PartitionSpec(),
        check_vma=False,
    )(state["params"], state["params"], state["loss"]["margins"], np.array([0, 15, 7, 7]))
    squares = sum(np.square(leaf).sum() for leaf in jax.tree.leaves(state["params"]))
    # A sum of 300 squares in another order.
    np.testing.assert_allclose(norm, np.sqrt(squares), rtol=1e-6)
    np.testing.assert_array_equal(weights, state["loss"]["margins"][[0, 15, 7, 7]])
    kernel = state["params"]["features"]["Dense_0"]["kernel"]
    np.testing.assert_array_equal(gradient, 4 * kernel)
