"""A state on devices and back, in each way of sharing, and devices that cannot share."""

import functools
import json
import re

import jax
import numpy as np
import pytest
from flax import linen as nn

from configs import digits, million_classes
from tests.parts.program import some_steps
from tests.parts.program.models import test_rematerialization
from train.configuration.parsing import parse
from train.devices import devices
from train.devices.devices import JitDevices, PmapDevices
from train.foundation.errors import UserError
from train.models.classifier import Classifier
from train.models.rematerialization import gathering_in_blocks
from train.run import experiment, plan
from train.run.parts import assemble

pytestmark = pytest.mark.usefixtures("standard_promotion")

NUM_CLASSES = 16
KINDS = ("pmap", "mesh", "fsdp")


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


def parts_of(array):
    return {shard.data.shape for shard in array.addressable_shards}


@pytest.mark.parametrize("class_devices", [1, 2, 8])
def test_a_state_on_one_mesh_goes_to_any_other(class_devices):
    state = drawn()
    there = JitDevices(class_devices).place(state)
    saved = JitDevices(class_devices).to_host(there)
    assert_same(saved, state)
    for other in (JitDevices(4), JitDevices(2, split_parameters=True), PmapDevices()):
        assert_same(other.to_host(other.place(saved)), state)
    own = NUM_CLASSES // class_devices
    assert parts_of(there["params"]["head"]["Dense_0"]["kernel"]) == {(16, own)}
    assert parts_of(there["params"]["head"]["Dense_0"]["bias"]) == {(own,)}
    assert parts_of(there["moments"][0]["head"]["class_vectors"]) == {(5, own)}
    assert parts_of(there["params"]["features"]["Dense_0"]["kernel"]) == {(3, NUM_CLASSES)}


def test_fsdp_splits_the_largest_axis_of_an_array_and_of_its_moments():
    there = JitDevices(2, split_parameters=True).place(drawn())
    assert parts_of(there["params"]["features"]["Dense_0"]["kernel"]) == {(3, 4)}
    assert parts_of(there["params"]["head"]["Dense_0"]["kernel"]) == {(4, 8)}
    # Neither axis of the features is a multiple of the four groups; biases are not worth messages.
    assert parts_of(there["moments"][0]["head"]["class_vectors"]) == {(5, 8)}
    assert parts_of(there["params"]["head"]["Dense_0"]["bias"]) == {(8,)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_is_saved_is_not_the_memory_of_the_devices(kind):
    state = {"step": np.zeros(8, np.float32)}
    found = devices.find(kind, 2, NUM_CLASSES)
    there = found.place(state)
    state["step"][:] = 1
    found.to_host(there)["step"][:] = 2
    np.testing.assert_array_equal(found.to_host(there)["step"], np.zeros(8))


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_compiled_once(kind):
    """Each compilation of a training step may take minutes."""
    found = devices.find(kind, 2, NUM_CLASSES)
    traces = []

    def step(state, hyperparameters, batch):
        traces.append(kind)
        return jax.tree.map(lambda leaf: leaf + 1, state), {"loss": batch["loss"].sum()}

    compiled = found.compile_train_step(step)
    state, hyperparameters = found.place(drawn()), found.place({"rate": np.float32(0.1)})
    for _ in range(3):
        batch = found.split({"loss": np.ones(16, np.float32)})
        state, _ = compiled(state, hyperparameters, batch)
    # After a run was resumed.
    state, _ = compiled(found.place(found.to_host(state)), hyperparameters, batch)
    # The function of `pmap` does not say how often it was compiled.
    assert (len(traces), getattr(compiled, "_cache_size", lambda: 1)()) == (1, 1)
    assert found.to_host(state)["step"] == 3 + 4


@pytest.mark.parametrize("kind", KINDS)
def test_rows_come_back_in_their_order(kind):
    found = devices.find(kind, 2, NUM_CLASSES)
    rows = np.arange(32.0, dtype=np.float32).reshape(16, 2)
    step = found.compile_eval_step(lambda _params, _stats, _loss, batch: {"twice": 2 * batch["x"]})
    nothing = found.place({"nothing": np.zeros(1)})
    outputs = step(nothing, nothing, nothing, found.split({"x": rows}))
    np.testing.assert_array_equal(found.join(outputs)["twice"], 2 * rows)


@pytest.mark.parametrize(
    ("wanted", "num_classes", "size"),
    [(12, 24, 4), (3, 24, 1), (None, 24, 8), (None, 1_000_000, 8), (None, 12, 4), (None, 7, 1)],
)
def test_a_finished_run_uses_as_many_devices_as_there_are(wanted, num_classes, size):
    """If 12 devices shared the classes of a run, 8 devices share them in groups of 4."""
    assert devices.find("mesh", wanted, num_classes).class_devices == size


def test_devices_that_cannot_share_equally_are_refused():
    config = json.loads(digits.get_config().to_json()) | {"parallel": "mesh"}
    devices.check(parse(config | {"class_devices": 2}), 8, 8)
    with pytest.raises(UserError, match=r"must be a divisor of 8, the .* got 5"):
        devices.check(parse(config | {"class_devices": 5}), 8, 8)
    config["dataset"] |= {"batch_size": 24, "mixup": 0.2}
    with pytest.raises(UserError, match=r"a multiple of 8 \(devices\) times 2 .* got 24"):
        devices.check(parse(config), 8, 8)


def test_no_device_has_the_scores_of_a_batch():
    """With a million classes they are a gigabyte; a device has those of its share."""
    config = million_classes.get_config()
    config.dataset.batch_size = 256
    here = plan.Target("here", "cpu", 2**40, jax.devices())
    step, inputs = plan.StepPlanner(parse(config.to_dict()), here).step_with_inputs(256)
    program = step.trace(*inputs).lower().compile().as_text()
    rows = {int(rows) for rows in re.findall(r"f32\[(\d+),1000000\]", program)}
    assert rows
    assert max(rows) <= 32


def test_a_step_is_of_the_global_batch():
    """With batch norm, whose statistics are not means of those of the devices."""

    def after_a_step(kind):
        config = json.loads(digits.get_config("cross_entropy").to_json())
        parts = assemble(parse({**config, "parallel": kind}))
        state, metrics = some_steps.make(parts, 1)
        assert metrics[0]["request"] == some_steps.REQUEST
        host = parts.devices.to_host(state)
        return host.params, host.batch_stats, metrics[0]["gradient_norm"]

    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5),
        after_a_step("pmap"),
        after_a_step("mesh"),
    )


def stop(_epoch, _metrics):
    raise KeyboardInterrupt


def losses_of(workdir):
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def test_a_run_continues_on_devices_of_another_kind(tmp_path):
    config = digits.get_config("cross_entropy")
    # A larger rate would let a rounding grow.
    config.update_from_flattened_dict({"num_epochs": 3, "optimizer.learning_rate": 1e-5})
    config = json.loads(config.to_json())
    experiment.run(config, tmp_path / "unbroken")
    for kind in KINDS:
        again = functools.partial(experiment.run, {**config, "parallel": kind}, tmp_path / "run")
        if kind != KINDS[-1]:
            with pytest.raises(KeyboardInterrupt):
                again(after_epoch=stop)
    again()
    found, losses = (losses_of(tmp_path / name) for name in ("run", "unbroken"))
    np.testing.assert_allclose(found, losses, rtol=1e-5)


@pytest.mark.parametrize("remat", [False, True])
def test_blocks_that_gather_their_parameters_have_the_same_gradients(remat):
    found = JitDevices(split_parameters=True)
    _, images = test_rematerialization.drawn(test_rematerialization.RANDOM_VIT)
    inputs = {"images": np.concatenate([images] * 4)}
    model = Classifier(test_rematerialization.RANDOM_VIT(axis_name=None), nn.Dense(NUM_CLASSES))
    params = model.init(jax.random.key(0), inputs["images"], train=False)["params"]
    placed, rows = found.place(params), found.split(inputs)
    key = jax.random.key(1)

    def gradient(apply, params, batch):
        def loss(params):
            rngs = {"dropout": key}
            return apply({"params": params}, batch["images"], train=True, rngs=rngs).std()

        return jax.grad(loss)(params)

    apply = gathering_in_blocks(model.apply, gather=found.gather, rows=found.rows, remat=remat)
    own = jax.jit(functools.partial(gradient, apply))(placed, rows)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5),
        found.to_host(own),
        jax.jit(functools.partial(gradient, model.apply))(params, inputs),
    )
