"""Devices that split the parameters hold a part of them each, and make the steps of `shard_map`."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from configs import synthetic_latents
from tests.parts.program import some_steps
from tests.parts.program.configurations import changed
from tests.rows import rows
from train.assembly import assemble
from train.configuration.parsing import parse
from train.devices.parallel import AXIS_NAME, CLASS_AXIS_NAME, MeshDevices, check_split
from train.devices.parameter_axis import axis_to_split
from train.foundation.errors import UserError
from train.models.networks.vit import VisionTransformer
from train.models.rematerialization import gathering_in_blocks

NUM_STEPS, WIDTH, NUM_CLASSES = 3, 32, 40
SMALL = {
    "dataset.num_classes": NUM_CLASSES,
    "dataset.num_genera": 8,
    "dataset.num_train": 320,
    "dataset.num_validation": 80,
    "dataset.num_test": 80,
    "dataset.balanced_per_class": 2,
    "dataset.batch_size": 32,
    "model.width": WIDTH,
    "optimizer.name": "adamw",
    "optimizer.learning_rate": 0.01,
}
# All that a step does with parameters and gradients: clipping, parts, averages, rates of layers.
OPTIONS = {
    "optimizer.clip_norm": 0.1,
    "optimizer.accumulation_steps": 2,
    "optimizer.average_decay": 0.9,
    "optimizer.head_learning_rate": 0.02,
    "optimizer.layer_decay": 0.5,
    "optimizer.decay_biases_and_norms": False,
}


def configured(loss, **fields):
    config = changed(synthetic_latents.get_config(loss).to_dict(), {**SMALL, **fields})
    return json.loads(json.dumps(config))


def after_some_steps(config):
    """The state on the devices and on the host, the metrics, and the predictions."""
    assembly = assemble(parse(config))
    state, metrics = some_steps.make(assembly, NUM_STEPS)
    found = assembly.evaluator.predict(*state.evaluated, "validation")
    return state, assembly.devices.to_host(state), metrics, (found.loss, found.values)


def bytes_of_device(tree):
    """What the first device has of a tree, and what all of it takes."""
    leaves = jax.tree.leaves(tree)
    here = sum(leaf.addressable_shards[0].data.nbytes for leaf in leaves)
    return here, sum(leaf.nbytes for leaf in leaves)


def assert_equal(found, expected):
    """Equal up to sums over the devices in another order, which three steps of Adam enlarge."""
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5),
        found,
        expected,
    )


@pytest.mark.parametrize(
    ("loss", "fields"),
    rows(
        [("cross_entropy", OPTIONS)],
        [
            # A loss of the whole batch, with two heads whose classes are split, too.
            ("average_k", {"class_devices": 2}),
            # With estimated labels, of which each device has all.
            ("role", {}),
            ("ldam", {"model.freeze": True}),
        ],
    ),
)
@pytest.mark.usefixtures("standard_promotion")
def test_steps_are_the_same_and_each_device_has_its_part(loss, fields):
    _, *expected = after_some_steps(
        configured(loss, **{**fields, "class_devices": None}, parallel="shard_map")
    )
    state, *found = after_some_steps(configured(loss, **fields, parallel="fsdp"))
    assert_equal(found, expected)
    devices = jax.device_count() // fields.get("class_devices", 1)
    for part in (state.params, state.opt_state, state.averages):
        here, everywhere = bytes_of_device(part)
        of_vectors = sum(leaf.nbytes for leaf in jax.tree.leaves(part) if leaf.ndim < 2)
        assert here <= everywhere / devices + of_vectors
        assert here >= everywhere / jax.device_count()


@pytest.mark.parametrize("remat", [False, True])
def test_each_block_gathers_its_parameters_when_it_needs_them(rng, remat):
    """Again in the backward pass, which keeps no complete array of a block."""
    model = VisionTransformer(None, 8, 2, width=16, depth=2, num_heads=2, dtype=jnp.bfloat16)
    images = rng.normal(size=(8, 16, 16, 3)).astype(np.float32)
    params = {"features": model.init(jax.random.key(0), images[:1], train=False)["params"]}
    devices = MeshDevices(1, 3, splits_parameters=True)
    shared, kept = devices.parameter_axis(params), []

    def step(params, images):
        def network(params):
            return model.apply({"params": params["features"]}, images, train=True)

        outputs, pull_back = jax.vjp(
            gathering_in_blocks(network, shared.gather_one, remat=remat), params
        )
        kept.extend(leaf.shape for leaf in jax.tree.leaves(pull_back))
        (gradients,) = pull_back(outputs)
        return shared.mean(gradients, outputs.mean())

    def whole(params, images):
        def mean(params):
            outputs = model.apply({"params": params["features"]}, images, train=True)
            return (outputs**2).sum(axis=1).mean() / 2, outputs.mean()

        gradients, mean_output = jax.grad(mean, has_aux=True)(params)
        return gradients, mean_output

    specs = devices._specs(params)
    mapped = jax.jit(
        jax.shard_map(
            step,
            mesh=devices._mesh,
            in_specs=(specs, PartitionSpec(AXIS_NAME)),
            out_specs=(specs, PartitionSpec()),
            check_vma=False,
        )
    )
    traced = str(mapped.trace(params, images).jaxpr)
    split = len(shared.split)
    # Four kernels of each block, the kernel of the patches, the class token and the positions.
    assert split == 2 * 4 + 3
    # What is only added is not needed in the backward pass.
    assert traced.count(" all_gather[") >= split + 2 * 4
    assert traced.count(" reduce_scatter[") == split
    kernels = {leaf.shape for leaf in jax.tree.leaves(params) if leaf.ndim == 2}
    assert len(kernels) == 4
    assert not kernels.intersection(kept)
    hidden = (1, 5, 4 * 16)
    assert (hidden in kept) is not remat
    found, expected = jax.jit(mapped)(params, images), jax.jit(whole)(params, images)
    # In bfloat16, of one image on each device in place of eight on one: some roundings of 2^-8.
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, atol=0.05 * np.abs(other).max()),
        found,
        expected,
    )


def test_the_axis_that_is_split():
    def axis(shape, *names, devices=8, num_classes=None):
        path = tuple(map(jax.tree_util.DictKey, names))
        leaf = np.empty(shape, np.float32)
        return axis_to_split(path, leaf, devices=devices, num_classes=num_classes)

    assert axis((3, 3, 16, 64), "features", "kernel") == 3
    assert axis((64, 16), "features", "kernel") == 0
    assert axis((16, 16), "features", "kernel") == 0
    # Seven classes are not shared by eight devices.
    assert axis((64, 7), "head", "kernel") == 0
    assert axis((6, 7), "head", "kernel") is None
    # Other devices share the classes.
    assert axis((8, 64), "head", "kernel", num_classes=64) == 0
    assert axis((7, 64), "head", "kernel", num_classes=64) is None
    assert axis((64,), "features", "bias") is None
    assert axis((64, 64), "batch_stats", "features", "mean") is None
    assert axis((64, 64), "loss", "costs") is None


def test_a_state_is_split_and_comes_back():
    kernels = {"features": {"kernel": np.arange(64.0).reshape(4, 16)}}
    kernels["head"] = {"kernel": np.arange(128.0).reshape(8, 16), "bias": np.arange(16.0)}
    devices = MeshDevices(2, 16, splits_parameters=True)
    there = devices.replicate({"params": kernels})
    specs = jax.tree.map(lambda leaf: tuple(leaf.sharding.spec), there["params"])
    assert specs["features"]["kernel"] == (None, AXIS_NAME)
    assert specs["head"] == {"kernel": (AXIS_NAME, CLASS_AXIS_NAME), "bias": (CLASS_AXIS_NAME,)}
    assert {shard.data.shape for shard in there["params"]["head"]["kernel"].addressable_shards} == {
        (2, 8)
    }
    jax.tree.map(np.testing.assert_array_equal, devices.to_host(there), {"params": kernels})
    made = devices.make(lambda: {"params": kernels})
    jax.tree.map(np.testing.assert_array_equal, made, {"params": kernels})


def test_devices_that_can_share_no_array_are_refused():
    devices = MeshDevices(1, 3, splits_parameters=True)
    shared = devices.parameter_axis({"head": {"kernel": np.ones((7, 3)), "bias": np.ones(8)}})
    with pytest.raises(UserError, match="the network has none for 8 devices: take config"):
        check_split(shared)


@pytest.mark.parametrize("name", ["lamb", "lars"])
def test_optimizers_that_need_whole_layers_are_refused(name):
    with pytest.raises(UserError, match=r"with config\.parallel=fsdp: others need"):
        parse(configured("cross_entropy", parallel="fsdp", **{"optimizer.name": name}))
