"""Whether a run fits on chips that need not be here: its step of training, compiled for them."""

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.errors
import numpy as np

from train.configuration import Config
from train.configuration.datasets import labels_of
from train.data import dataset_spec
from train.data.classes import Classes
from train.data.dataset import INPUT_DTYPES
from train.data.truths import ONE
from train.devices import devices
from train.foundation.errors import UserError, needs_package
from train.run.loop import AHEAD
from train.run.parts import assemble
from train.run.run_folder import Facts
from train.training.losses import find_loss

# An NVIDIA H100 SXM5, for XLA, by its programming guide and its data sheet.
_H100 = """
platform_name: "CUDA"
device_description_str: "NVIDIA H100 80GB HBM3"
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_block_limit: 65536
  registers_per_core_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  l2_cache_size: 52428800
  memory_bandwidth: 3352320000000
  device_memory_size: 84929347584
}
dnn_version_info { major: 9 minor: 12 }
runtime_version { major: 13 }
"""
# The bytes of a chip, the numbers of a topology, and the chips of the largest machine.
_KINDS = {
    "v5e": (16 * 2**30, 2, 256),
    "v5p": (95 * 2**30, 3, 8960),
    "v6e": (32 * 2**30, 2, 256),
    "h100": (84_929_347_584, 1, 256),
}


@dataclass(frozen=True)
class Target:
    """Chips: the user's name of them, their platform, the bytes of each, and their descriptions."""

    name: str
    platform: str
    memory: int
    devices: Sequence[Any]


def find_target(name: str) -> Target:
    """The chips of a name, such as `v5e:4x4`. JAX then computes only on the CPU.

    Raises:
        UserError: there is no such kind or topology, or its compiler is not installed.
    """
    wanted = f"one of {', '.join(_KINDS)}, with a topology that there is, such as v5e:4x4"
    refused = UserError(field="--device", must_be=wanted, got=name)
    kind, _, shape = name.partition(":")
    if kind not in _KINDS or not re.fullmatch(r"(\d{1,4}(x\d{1,4})*)?", shape):
        raise refused
    memory, dimensions, most = _KINDS[kind]
    sizes = [int(size) for size in shape.split("x") if shape]
    # The compilers know machines of any number of chips.
    if len(sizes) not in (0, dimensions) or not 0 < math.prod(sizes) <= most:
        raise refused
    platform = "cuda" if kind == "h100" else "tpu"
    package, extra = {"cuda": ("jax_cuda13_plugin", "cuda13"), "tpu": ("libtpu", "tpu")}[platform]
    if importlib.util.find_spec(package) is None:
        raise needs_package(f"--device={name}", package, extra)
    from jax.experimental import topologies  # noqa: PLC0415

    jax.config.update("jax_platforms", "cpu")
    # Without these, the compilers ask this machine for its chips. Several may run side by side.
    os.environ |= {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    if platform == "cuda":
        given = {"target_config": _H100, "topology": f"1x1x{math.prod(sizes)}"}
    else:
        # The smallest that a host has, for one of its chips.
        given = {"topology_name": f"{kind}:{shape or '2x2' + 'x1' * (dimensions - 2)}"}
    try:
        found = topologies.get_topology_desc(platform=platform, **given)
    except jax.errors.JaxRuntimeError as error:
        raise refused if "INVALID_ARGUMENT" in str(error) else error from error
    return Target(name, platform, memory, found.devices[: math.prod(sizes)])


@dataclass(frozen=True)
class Plan:
    """What a step of training needs of each chip, in bytes.

    Attributes:
        batch_size: of all chips.
        parts: what the step is given, by part.
        temporary: what it needs beside that; None if the compiler says that it does not fit.
        needed: at once, with the batches that wait for the step; infinite if it does not fit.
    """

    batch_size: int
    parts: Mapping[str, int]
    temporary: int | None
    needed: float


class StepPlanner:
    """Compiles the step of a configuration for chips, for batches of several sizes.

    A data set is opened only if the shapes of the step are not known without its files.

    Args:
        config: the configuration.
        target: the chips.
        facts: what is known of the data set, which is then not opened.

    Raises:
        UserError: they do not fit each other.
    """

    def __init__(self, config: Config, target: Target, facts: Facts | None = None) -> None:
        self._target = target
        own = [device for device in target.devices if device.process_index == jax.process_index()]
        devices.check(config, len(target.devices), len(own))
        facts = facts or _assumed_facts(config)
        self._run = assemble(config, facts)
        if facts is not None and not self._run.loss.estimates_labels:
            self._run.data.steps_per_epoch = 1000  # Changes no shape.
        kind, sharing = config.parallel, config.class_devices
        if kind == "pmap":
            # It needs as much as a mesh whose devices have all classes.
            kind, sharing = "mesh", 1
        num_classes = self._run.data.num_classes
        self._run.devices = devices.find(kind, sharing, num_classes, target.devices)

    def plan(self, batch_size: int) -> Plan:
        """What the step needs with a batch of this size."""
        step, inputs = self.step_with_inputs(batch_size)
        state, _, batch = inputs
        given = {
            "parameters": state.params,
            "statistics of the network": state.batch_stats,
            "state of the optimizer": state.opt_state,
            "moving averages": state.averages,
            "estimated labels": state.label_logits,
            "batch": batch,
        }
        parts = {
            name: sum(
                math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
                for leaf in jax.tree.leaves(tree)
            )
            for name, tree in given.items()
        }
        lowered = step.trace(*inputs).lower(lowering_platforms=(self._target.platform,))
        # With a GPU, XLA measures which tiles a product has. Without one, it finds none for some
        # products (JAX 0.10.2), so NVIDIA's library computes all of them.
        options = {"xla_gpu_enable_triton_gemm": False} if self._target.platform == "cuda" else {}
        try:
            memory = lowered.compile(compiler_options=options).memory_analysis()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return Plan(batch_size, parts, None, math.inf)
        # A chip may pad what it is given.
        padded = max(memory.argument_size_in_bytes, sum(parts.values()))
        at_once = max(memory.peak_memory_in_bytes, padded + memory.temp_size_in_bytes)
        waiting = AHEAD * parts["batch"]
        return Plan(batch_size, parts, memory.temp_size_in_bytes, at_once + waiting)

    def step_with_inputs(self, batch_size: int) -> tuple[Any, tuple[Any, Any, Any]]:
        """The jitted step, and the shapes of its state, its hyperparameters and its batch."""
        run, where = self._run, self._run.devices
        assert isinstance(where, devices.JitDevices)
        state, one = run.state_shapes(), np.zeros(1, np.int32)
        row = {
            "images": np.zeros((1, *run.data.image_shape), INPUT_DTYPES[run.data.spec.inputs]),
            "positions": one,
            "labels": one,
        }
        if labels_of(run.config.dataset) != ONE:
            row.pop("labels")
            row |= run.data.dataset.train.truth(one)
        if run.loss.estimates_labels:
            row["examples"] = one
            shape = (len(run.data.dataset.train), run.data.num_classes)
            estimates: Any = jax.ShapeDtypeStruct(shape, np.float32)
            state = dataclasses.replace(state, label_logits=estimates)
        batch = {
            name: jax.ShapeDtypeStruct((batch_size, *array.shape[1:]), array.dtype)
            for name, array in row.items()
        }
        batch["request"] = jax.ShapeDtypeStruct((len(self._target.devices),), np.int32)
        inputs = state, run.hyperparameters_of_training(), batch
        places = (*where.shardings(inputs[:2]), dict.fromkeys(batch, where.rows))
        shapes = jax.tree.map(
            lambda leaf, place: jax.ShapeDtypeStruct(
                np.shape(leaf), jax.numpy.result_type(leaf), sharding=place
            ),
            inputs,
            places,
        )
        return run.compile_train_step(), shapes

    def find_largest(self, first: Plan) -> tuple[Plan | None, int]:
        """The largest batch that fits, and a batch, at most an eighth larger, that does not.

        Args:
            first: the plan to begin with.
        """
        memory, plan, too_large = self._target.memory, first, math.inf
        unit = math.lcm(8, 2 * self._run.config.optimizer.accumulation_steps)
        unit *= len(self._target.devices)
        if plan.needed > memory:
            plan, too_large = self.plan(unit), plan.batch_size
            if plan.needed > memory:
                return None, unit
        while too_large - plan.batch_size > (least := max(unit, plan.batch_size // 8)):
            # A part of the memory does not depend on the batch, so a larger batch may fit, too.
            size = max(int(plan.batch_size * memory / plan.needed), plan.batch_size + least)
            if size >= too_large:
                size = int(plan.batch_size + too_large) // 2
            tried = self.plan(max(size // unit, plan.batch_size // unit + 1) * unit)
            if tried.needed > memory:
                too_large = tried.batch_size
            else:
                plan = tried
        return plan, int(too_large)


def _assumed_facts(config: Config) -> Facts | None:
    """Facts with made-up numbers, which change no shape; None if only the files have the rest."""
    spec = dataset_spec(config.dataset)
    has_ranks = find_loss(config.loss.name).needs_taxonomy or config.loss.rank_weights
    if spec.num_classes is None or spec.image_shape is None or has_ranks:
        return None
    classes = Classes(tuple(map(str, range(spec.num_classes))), (20,) * spec.num_classes)
    numbers = (1.0,) * spec.image_shape[-1]
    return Facts(classes, spec.image_shape, mean=numbers, std=numbers)


def describe(plan: Plan, target: Target) -> Iterator[str]:
    """The lines of a plan: memory by part, and whether it fits."""
    yield f"{target.name}, {len(target.devices)} x {target.memory / 1e9:.1f} GB"
    yield f"A batch of {plan.batch_size:,}, of which a chip needs"
    rows = {part: size for part, size in plan.parts.items() if size}
    if plan.temporary is not None:
        rows["activations, gradients and what else is temporary"] = plan.temporary
        rows["batches of the next steps"] = AHEAD * plan.parts["batch"]
        rows["at once"] = int(plan.needed)
    for words, size in rows.items():
        yield f"  {size // 1000:>12,} kB  {words}"
    yield "It fits" if plan.needed <= target.memory else "It does not fit"


def describe_largest(plan: Plan | None, too_large: int, target: Target) -> str:
    """The line of the largest batch."""
    if plan is None:
        return f"No batch of {too_large:,} fits: take more chips, a smaller image, or bfloat16"
    each = plan.batch_size // len(target.devices)
    return (
        f"The largest batch that fits is about {plan.batch_size:,}, {each:,} for each chip, which "
        f"needs {plan.needed / 1e9:.2f} GB; {too_large:,} do not fit"
    )
