"""Whether a run fits on machines that need not be here: its step of training, compiled for them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.errors
import numpy as np

from train.assembly import check_batch_size, check_images
from train.assembly.parts import Assembly
from train.configuration import rules
from train.configuration.datasets import labels_of
from train.configuration.groups import Config
from train.data import dataset_spec
from train.data.classes import Classes
from train.data.dataset import INPUT_DTYPES
from train.data.truths import ONE
from train.devices import parallel
from train.planning.accounts import Account, compile_for
from train.planning.targets import Target
from train.training import rank_losses
from train.training.losses import find_loss
from train.training.steps_in_flight import AHEAD
from train.workdir.facts import Facts

# Neither changes a shape: what a data set that is not opened has of each class, and of steps.
_EXAMPLES_OF_A_CLASS, _STEPS = 20, 1000
# The largest batch is known to this part of it.
_PART = 1 / 8


@dataclass(frozen=True)
class Plan:
    """What a step of training needs of each chip.

    Attributes:
        batch_size: of all chips.
        parts: bytes of what the step is given, by part.
        account: of the compiled step; None if its compiler reports that it does not fit.
    """

    batch_size: int
    parts: Mapping[str, int]
    account: Account | None

    def fits(self, target: Target) -> bool:
        """Whether a chip has the memory."""
        return self.account is not None and self.needed <= target.memory

    @property
    def needed(self) -> int:
        """Bytes of a chip at once: of the step, and of the batches that wait for it."""
        account = self.account
        assert account is not None
        # A chip may pad what it is given.
        given = max(account.arguments, sum(self.parts.values()))
        return max(account.peak, given + account.temporary) + self.waiting

    @property
    def waiting(self) -> int:
        """Bytes of the batches of the steps that are dispatched ahead."""
        return AHEAD * self.parts["batch"]


@dataclass(frozen=True)
class Largest:
    """The largest batch that fits.

    Attributes:
        plan: of this batch.
        too_large: a batch that does not fit, at most an eighth larger or the next one.
    """

    plan: Plan
    too_large: int


class StepPlanner:
    """Compiles the step of a configuration for chips, for batches of several sizes.

    A data set is not opened if what the step needs of it is known without its files: the number of
    classes, the shape, and for some losses what is above the classes.

    Args:
        config: the configuration.
        target: the chips.
        facts: what is known of the data set, which is then not opened.

    Raises:
        UserError: the data set, the chips and the configuration do not fit each other.
    """

    def __init__(self, config: Config, target: Target, facts: Facts | None = None) -> None:
        self._target = target
        own = [device for device in target.devices if device.process_index == jax.process_index()]
        parallel.check_class_devices(config.class_devices, len(own))
        facts = facts or _assumed_facts(config)
        assembly = Assembly(config, facts, None)
        check_images(assembly)
        rank_losses.check(config.loss, assembly.loss, assembly.data.tree)
        rules.check_classes(config, assembly.data.spec, assembly.data.num_classes)
        if facts is not None and not assembly.loss.estimates_labels:
            assembly.data.steps_per_epoch = _STEPS
        self._devices = parallel.devices_to_plan_for(
            target.devices,
            config.parallel,
            class_devices=config.class_devices,
            num_classes=assembly.data.num_classes,
        )
        assembly.devices = self._devices
        if self._devices.splits_parameters:
            parallel.check_split(assembly.parameter_axis, len(target.devices))
        self._assembly = assembly
        check_batch_size(config, self._devices.class_axis.size, num_devices=len(target.devices))

    def plan(self, batch_size: int) -> Plan:
        """What the step needs with a batch of this size."""
        step, inputs = self.step_with_inputs(batch_size)
        parts = {
            field.name: size
            for field in dataclasses.fields(inputs[0])
            if (size := _bytes_of_chip(getattr(inputs[0], field.name)))
        }
        parts["hyperparameters"], parts["batch"] = map(_bytes_of_chip, inputs[1:])
        try:
            account = compile_for(step, self._target, *inputs)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return Plan(batch_size, parts, None)
        return Plan(batch_size, parts, account)

    def step_with_inputs(self, batch_size: int) -> tuple[Any, tuple[Any, Any, Any]]:
        """The jitted step, and the shapes of its state, its hyperparameters and its batch."""
        assembly = self._assembly
        state = assembly.state_shapes()
        if assembly.loss.estimates_labels:
            shape = (len(assembly.data.dataset.train), assembly.data.num_classes)
            estimates: Any = jax.ShapeDtypeStruct(shape, np.float32)
            state = dataclasses.replace(state, label_logits=estimates)
        inputs = self._devices.planned(
            state, assembly.hyperparameters_of_training(), self._batch(batch_size)
        )
        return self._devices.compile_train_step(assembly.step_of_device()), inputs

    def find_largest(self, first: Plan) -> Largest | None:
        """A batch as large as fits, a multiple of eight examples of each chip, or `first`.

        Memory grows about linearly with the batch. So each batch that is tried is the largest one
        that the earlier plans predict to fit. The search ends when a batch that fits and one that
        does not are an eighth apart.

        Args:
            first: a plan.

        Returns:
            None if no such batch fits.
        """
        target = self._target
        groups = len(target.devices) // self._devices.class_axis.size
        unit = math.lcm(8, 2 * self._assembly.config.optimizer.accumulation_steps) * groups
        largest = first
        if not first.fits(target) or first.batch_size % unit:
            largest = self.plan(unit)
        if not largest.fits(target):
            return Largest(first, unit) if first.fits(target) else None
        known, beyond = [largest], None
        if not first.fits(target):
            known, beyond = [largest, first], first.batch_size
        while beyond is None or beyond - largest.batch_size > max(unit, _PART * largest.batch_size):
            found = self.plan(self._next_size(known, beyond, unit))
            known.append(found)
            if found.fits(target):
                largest = found
            else:
                beyond = found.batch_size
        return Largest(largest, beyond)

    def _next_size(self, known: Sequence[Plan], beyond: int | None, unit: int) -> int:
        """The batch to try after these plans, below one that does not fit."""
        # Compilers of TPUs do not report how much memory a program needs that does not fit.
        by_size = sorted((plan for plan in known if plan.account), key=lambda plan: plan.batch_size)
        fitting = [plan for plan in by_size if plan.fits(self._target)]
        largest, others = fitting[-1], [*by_size[len(fitting) :], *reversed(fitting[:-1])]
        size, left = largest.batch_size, self._target.memory - largest.needed
        if not others:
            # What does not depend on the batch needs at least what the step keeps of it.
            kept = sum(largest.parts.values()) - largest.parts["batch"]
            guess = size + left * size // max(largest.needed - kept, size)
        else:
            # The next batch that does not fit, else the next smaller one.
            other = others[0]
            of_one = (other.needed - largest.needed) / (other.batch_size - size)
            # Seldom more than eight times as large: two small batches predict a large one badly.
            guess = size + int(min(left / max(of_one, 1), 7 * size))
        if guess - size < _PART * size:
            # The guess may be the largest batch. Only a batch that does not fit can show this.
            guess = size + int(_PART * size)
        if beyond is not None and guess >= beyond:
            guess = (size + beyond) // 2
        return max(guess // unit * unit, size + unit)

    def _batch(self, size: int) -> dict[str, jax.ShapeDtypeStruct]:
        assembly = self._assembly
        truth: dict[str, np.ndarray] = {"labels": np.zeros(1, np.int32)}
        if labels_of(assembly.config.dataset) != ONE:
            truth = assembly.data.dataset.train.truth(np.zeros(1, np.int32))
        numbers = jax.ShapeDtypeStruct((size,), np.int32)
        dtype = INPUT_DTYPES[assembly.data.spec.inputs]
        requests = jax.ShapeDtypeStruct((len(self._target.devices),), np.int32)
        batch = {
            "images": jax.ShapeDtypeStruct((size, *assembly.data.image_shape), dtype),
            "positions": numbers,
            "request": requests,
        } | {
            name: jax.ShapeDtypeStruct((size, *array.shape[1:]), array.dtype)
            for name, array in truth.items()
        }
        return {**batch, "examples": numbers} if assembly.loss.estimates_labels else batch


def _assumed_facts(config: Config) -> Facts | None:
    """Facts with made-up numbers, which change no shape; None if only the files have the rest."""
    spec = dataset_spec(config.dataset)
    has_ranks = find_loss(config.loss.name).needs_taxonomy or config.loss.rank_weights
    if spec.num_classes is None or spec.image_shape is None or has_ranks:
        return None
    names = tuple(map(str, range(spec.num_classes)))
    classes = Classes(names, (_EXAMPLES_OF_A_CLASS,) * spec.num_classes)
    zeros, ones = (0.0,) * spec.image_shape[-1], (1.0,) * spec.image_shape[-1]
    return Facts(classes, spec.image_shape, mean=spec.mean or zeros, std=spec.std or ones)


def _bytes_of_chip(tree: Any) -> int:
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )
