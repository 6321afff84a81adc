"""The one file that knows devices: copies the state to each, splits batches, runs steps on all."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from typing_extensions import override

from train.devices.class_axis import ALL_CLASSES, ClassAxis, is_of_classes
from train.devices.parameter_axis import ParameterAxis, axis_to_split
from train.foundation.errors import UserError

# The axis of devices that the batch is split along.
AXIS_NAME = "devices"
# The axis of devices that the classes are split along.
CLASS_AXIS_NAME = "classes"


class Devices(ABC):
    """All devices of all processes, each with a copy of the state and a share of every batch."""

    # The axis that the classes are split along, for a step that runs on each device.
    class_axis = ALL_CLASSES
    # Whether the devices that split the batch also split the parameters.
    splits_parameters = False

    def parameter_axis(self, parameters: Any) -> ParameterAxis:
        """The axis that these parameters are split along, for a step that runs on each device."""
        del parameters
        return ParameterAxis(AXIS_NAME, class_axis=self.class_axis)

    def make(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """The state that a function makes of its inputs, in memory of the host."""
        return jax.device_get(function(*inputs))

    @abstractmethod
    def replicate(self, state: Any) -> Any:
        """A copy of the state on every device, except what the devices share."""

    @abstractmethod
    def to_host(self, state: Any) -> Any:
        """A state that is on the devices, as one copy of NumPy arrays that the caller owns."""

    @abstractmethod
    def split(self, batch: Mapping[str, np.ndarray]) -> Any:
        """This process's share [n, ...] of a batch, as equal shares on its devices."""

    @abstractmethod
    def join(self, outputs: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
        """The outputs of this process's devices for their shares, on the host as [n, ...]."""

    @abstractmethod
    def compile_train_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step `(state, hyperparameters, batch)` on every device at once.

        The memory of the old state is reused for the new one.
        """

    @abstractmethod
    def compile_eval_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step `(params, batch_stats, hyperparameters, batch)` on every device at once."""


class PmapDevices(Devices):
    """Devices by `jax.pmap`: every array has a first axis over this process's devices."""

    @override
    def replicate(self, state: Any) -> Any:
        # In the layout of the state that a step of `pmap` returns: for another layout, the step is
        # traced and compiled again.
        devices = np.array(jax.local_devices())
        first = NamedSharding(Mesh(devices, (AXIS_NAME,)), PartitionSpec(AXIS_NAME))

        def copied(leaf: Any) -> jax.Array:
            whole = np.asarray(leaf)
            # Copies: on the CPU an array may be the memory that it was made of, which a step gets.
            return jax.make_array_from_callback(
                (len(devices), *whole.shape), first, lambda _index: np.array(whole)[None]
            )

        return jax.tree.map(copied, state)

    @override
    def to_host(self, state: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[0], _first_shards(state))

    @override
    def split(self, batch: Mapping[str, np.ndarray]) -> Any:
        devices = jax.local_device_count()
        return {name: array.reshape(devices, -1, *array.shape[1:]) for name, array in batch.items()}

    @override
    def join(self, outputs: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
        return {
            name: array.reshape(-1, *array.shape[2:])
            for name, array in _local_shards(outputs).items()
        }

    @override
    def compile_train_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        return jax.pmap(step, axis_name=AXIS_NAME, donate_argnums=0)

    @override
    def compile_eval_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        return jax.pmap(step, axis_name=AXIS_NAME)


class ShardMapDevices(Devices):
    """Devices by `jax.shard_map`: arrays are global and span the devices of all processes.

    Args:
        mesh: the devices, with the axis that the batch is split along; None for all of them in a
            row.
    """

    def __init__(self, mesh: Mesh | None = None) -> None:
        self._mesh = Mesh(np.array(jax.devices()), (AXIS_NAME,)) if mesh is None else mesh
        self._split = PartitionSpec(AXIS_NAME)

    @override
    def replicate(self, state: Any) -> Any:
        replicated = NamedSharding(self._mesh, PartitionSpec())
        return jax.tree.map(
            lambda leaf: jax.make_array_from_process_local_data(replicated, np.array(leaf)), state
        )

    @override
    def to_host(self, state: Any) -> Any:
        return _first_shards(state)

    @override
    def split(self, batch: Mapping[str, np.ndarray]) -> Any:
        split = NamedSharding(self._mesh, self._split)
        return {
            name: jax.make_array_from_process_local_data(split, array)
            for name, array in batch.items()
        }

    @override
    def join(self, outputs: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
        return _local_shards(outputs)

    def planned(self, state: Any, hyperparameters: Any, batch: Any) -> tuple[Any, Any, Any]:
        """The shapes of the inputs of a training step, with their places."""

        def placed(leaf: Any, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
            sharding = NamedSharding(self._mesh, spec)
            return jax.ShapeDtypeStruct(np.shape(leaf), jnp.result_type(leaf), sharding=sharding)

        found = jax.tree.map(
            placed, (state, hyperparameters), self._specs((state, hyperparameters))
        )
        return *found, jax.tree.map(lambda leaf: placed(leaf, self._split), batch)

    def _specs(self, tree: Any) -> Any:
        """How each array of a state, or of the hyperparameters, is split."""
        return jax.tree.map(lambda _: PartitionSpec(), tree)

    @override
    def compile_train_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        inputs = (PartitionSpec(), PartitionSpec(), self._split)
        return jax.jit(self._mapped(step, inputs, PartitionSpec()), donate_argnums=0)

    @override
    def compile_eval_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        inputs = (PartitionSpec(), PartitionSpec(), PartitionSpec(), self._split)
        return jax.jit(self._mapped(step, inputs, self._split))

    def _mapped(self, step: Callable[..., Any], inputs: Any, outputs: Any) -> Callable[..., Any]:
        return jax.shard_map(
            step,
            mesh=self._mesh,
            in_specs=inputs,
            out_specs=outputs,
            # With the check, the gradients of replicated parameters arrive summed over the devices,
            # and the step, which pmap uses too, would take the sum for a mean.
            check_vma=False,
        )


class MeshDevices(ShardMapDevices):
    """Devices along two axes: the batch is split along one, and the classes along the other.

    A device has the head's parameters for its own classes, their gradient, and what the optimizer
    has for them. With `splits_parameters` it has a part of all other large arrays of the network,
    too, which the devices along the axis of the batch share. It has a copy of all else.

    Args:
        class_devices: the devices that share the classes. If they do not divide the devices of a
            process, the largest number is taken that divides both, because a finished run may be
            used on any number of devices. None for the largest number that divides those and the
            classes.
        num_classes: the number of classes L, a multiple of `class_devices`.
        devices: all of them; None for those that JAX finds.
        splits_parameters: whether the devices along the axis of the batch share the parameters.
    """

    def __init__(
        self,
        class_devices: int | None,
        num_classes: int,
        devices: Sequence[Any] | None = None,
        *,
        splits_parameters: bool = False,
    ) -> None:
        found = jax.devices() if devices is None else devices
        own = [device for device in found if device.process_index == jax.process_index()]
        size = math.gcd(class_devices or num_classes, len(own))
        if size > 1:
            self.class_axis = ClassAxis(CLASS_AXIS_NAME, size, num_classes // size)
        self._num_classes = num_classes
        self.splits_parameters = splits_parameters
        # A process has all classes, so that it can save and evaluate what its own devices have.
        in_order = sorted(found, key=lambda device: (device.process_index, device.id))
        rows = np.array(in_order).reshape(-1, size)
        super().__init__(Mesh(rows, (AXIS_NAME, CLASS_AXIS_NAME)))

    @override
    def parameter_axis(self, parameters: Any) -> ParameterAxis:
        leaves = jax.tree_util.tree_leaves_with_path(parameters)
        found = {
            jax.tree_util.keystr(path): axis
            for path, leaf in leaves
            if (axis := self._axis_to_split(path, leaf)) is not None
        }
        return ParameterAxis(AXIS_NAME, found, self.class_axis)

    @override
    def make(self, function: Callable[..., Any], *inputs: Any) -> Any:
        # No device makes the complete head, or complete split parameters: it may not have room for
        # them.
        rows = np.array(jax.local_devices()).reshape(-1, self.class_axis.size)
        own = Mesh(rows if self.splits_parameters else rows[:1], (AXIS_NAME, CLASS_AXIS_NAME))
        shardings = jax.tree.map(
            lambda spec: NamedSharding(own, spec), self._specs(jax.eval_shape(function, *inputs))
        )
        return self.to_host(jax.jit(function, out_shardings=shardings)(*inputs))

    @override
    def replicate(self, state: Any) -> Any:
        def placed(leaf: Any, spec: PartitionSpec) -> jax.Array:
            whole = np.asarray(leaf)
            # Copies: on the CPU an array may be the memory that it was made of, which a step gets.
            return jax.make_array_from_callback(
                whole.shape, NamedSharding(self._mesh, spec), lambda index: np.array(whole[index])
            )

        return jax.tree.map(placed, state, self._specs(state))

    @override
    def to_host(self, state: Any) -> Any:
        return jax.tree.map(lambda leaf: _assembled(self._with_own_rows(leaf)), state)

    def _with_own_rows(self, leaf: jax.Array) -> jax.Array:
        """The array; the devices of this process have all of its parts."""
        if not self.splits_parameters or leaf.is_fully_addressable:
            return leaf
        sharding: Any = leaf.sharding
        names = [None if name == AXIS_NAME else name for name in sharding.spec]
        gathered: jax.Array = jax.jit(
            _unchanged, out_shardings=NamedSharding(self._mesh, PartitionSpec(*names))
        )(leaf)
        return gathered

    @override
    def join(self, outputs: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
        return {name: _assembled(array) for name, array in outputs.items()}

    @override
    def compile_train_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def whole(state: Any, hyperparameters: Any, batch: Any) -> Any:
            of_state = self._specs(state)
            inputs = (of_state, self._specs(hyperparameters), self._split)
            mapped = self._mapped(step, inputs, (of_state, PartitionSpec()))
            return mapped(state, hyperparameters, batch)

        return jax.jit(whole, donate_argnums=0)

    @override
    def compile_eval_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def of_device(*inputs: Any) -> tuple[Any, Any]:
            # The scores are for the classes of a device. All other results are for its share of the
            # batch.
            found = dict(step(*inputs))
            return found.pop("scores"), found

        outputs = PartitionSpec(AXIS_NAME, CLASS_AXIS_NAME), self._split

        def whole(params: Any, batch_stats: Any, hyperparameters: Any, batch: Any) -> Any:
            of_state = self._specs({"params": params, "batch_stats": batch_stats})
            inputs = (of_state["params"], of_state["batch_stats"], self._specs(hyperparameters))
            mapped = self._mapped(of_device, (*inputs, self._split), outputs)
            scores, found = mapped(params, batch_stats, hyperparameters, batch)
            return {**found, "scores": scores}

        return jax.jit(whole)

    @override
    def _specs(self, tree: Any) -> Any:
        def spec(path: tuple[Any, ...], leaf: Any) -> PartitionSpec:
            names: list[str | None] = [None] * np.ndim(leaf)
            if is_of_classes(path, leaf, self._num_classes):
                names[-1] = CLASS_AXIS_NAME
            if (axis := self._axis_to_split(path, leaf)) is not None:
                names[axis] = AXIS_NAME
            return PartitionSpec(*names) if any(names) else PartitionSpec()

        return jax.tree_util.tree_map_with_path(spec, tree)

    def _axis_to_split(self, path: tuple[Any, ...], leaf: Any) -> int | None:
        if not self.splits_parameters:
            return None
        return axis_to_split(
            path,
            leaf,
            devices=self._mesh.shape[AXIS_NAME],
            num_classes=None if self.class_axis.size == 1 else self._num_classes,
        )


# The values of `config.parallel`.
KINDS = ("pmap", "shard_map", "mesh", "fsdp")


def find_devices(kind: str, *, class_devices: int | None, num_classes: int) -> Devices:
    """All devices, in one of the ways of `KINDS`; see `MeshDevices` for the other arguments."""
    if kind == "mesh":
        return MeshDevices(class_devices, num_classes)
    if kind == "fsdp":
        return MeshDevices(class_devices or 1, num_classes, splits_parameters=True)
    return PmapDevices() if kind == "pmap" else ShardMapDevices()


def devices_to_plan_for(
    devices: Sequence[Any], kind: str, *, class_devices: int | None, num_classes: int
) -> ShardMapDevices:
    """Like `find_devices`, for devices that need not be here; `pmap` has `shard_map`'s step."""
    if kind == "mesh":
        return MeshDevices(class_devices, num_classes, devices)
    if kind == "fsdp":
        return MeshDevices(class_devices or 1, num_classes, devices, splits_parameters=True)
    return ShardMapDevices(Mesh(np.array(devices), (AXIS_NAME,)))


def check_class_devices(class_devices: int | None, num_devices: int | None = None) -> None:
    """Refuses a number of devices to share the classes that does not divide the devices.

    Args:
        class_devices: `config.class_devices`.
        num_devices: those of a process; None for those that JAX finds.
    """
    devices = num_devices or jax.local_device_count()
    if class_devices is not None and devices % class_devices:
        dividing = ", ".join(str(size) for size in range(1, devices + 1) if devices % size == 0)
        each = " of each process" if jax.process_count() > 1 else ""
        raise UserError(
            f"config.class_devices must divide the {devices} devices{each}: one of {dividing}; "
            f"got {class_devices}"
        )


def check_split(shared: ParameterAxis, num_devices: int | None = None) -> None:
    """Refuses devices that can share no array of the parameters equally.

    Args:
        shared: what the devices share with `config.parallel=fsdp`.
        num_devices: all of them; None for those that JAX finds.
    """
    devices = num_devices or jax.device_count()
    if not shared.split:
        raise UserError(
            "config.parallel=fsdp splits arrays of parameters along axes whose size is a multiple "
            f"of the devices; the network has none for {devices} devices: take "
            "config.parallel=shard_map"
        )


def check_batch_size(
    batch_size: int,
    accumulation_steps: int,
    *,
    in_pairs: bool = False,
    class_devices: int = 1,
    num_devices: int | None = None,
) -> None:
    """Refuses a batch that the devices, and the parts of each, cannot share equally.

    Args:
        batch_size: the size of the global batch.
        accumulation_steps: the number of parts of a device's share.
        in_pairs: whether a part must have an even number of examples.
        class_devices: the devices that have the same share of the batch.
        num_devices: all of them; None for those that JAX finds.
    """
    devices = (num_devices or jax.device_count()) // class_devices
    if batch_size % (devices * accumulation_steps * (2 if in_pairs else 1)):
        what = "devices" if class_devices == 1 else f"groups of {class_devices} devices"
        factors = [f"the {devices} {what}"] if devices > 1 else []
        if accumulation_steps > 1:
            factors.append(f"config.optimizer.accumulation_steps, {accumulation_steps}")
        if in_pairs:
            factors.append("2, because config.dataset.mixup takes pairs")
        raise UserError(
            field="config.dataset.batch_size",
            must_be=f"a multiple of {' times '.join(factors)}",
            got=batch_size,
        )


def _unchanged(array: jax.Array) -> jax.Array:
    return array


def _first_shards(tree: Any) -> Any:
    """What the first device of this process holds."""
    shards = jax.device_get(jax.tree.map(lambda leaf: leaf.addressable_data(0), tree))
    # On the CPU what was fetched is the device's own memory, which the next step is given.
    return jax.tree.map(np.array, shards)


def _assembled(array: jax.Array) -> np.ndarray:
    """What the devices of this process hold of an array, put together: all of it, or some rows."""
    if array.ndim == 0:
        return np.array(array.addressable_data(0))
    # Several devices may hold the same.
    parts = {str(shard.index): shard for shard in array.addressable_shards}.values()
    rows = [shard.index[0].indices(array.shape[0]) for shard in parts]
    first, end = min(start for start, _, _ in rows), max(stop for _, stop, _ in rows)
    found = np.empty((end - first, *array.shape[1:]), array.dtype)
    for (start, stop, _), shard in zip(rows, parts, strict=True):
        found[(slice(start - first, stop - first), *shard.index[1:])] = shard.data
    return found


def _local_shards(outputs: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
    """What the devices of this process hold, one after another along the first axis."""
    return {
        name: np.concatenate(
            [
                np.asarray(shard.data)
                for shard in sorted(
                    array.addressable_shards, key=lambda shard: shard.index[0].start or 0
                )
            ]
        )
        for name, array in outputs.items()
    }
