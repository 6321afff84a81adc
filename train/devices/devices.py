"""All devices of all processes: where a state and batches are, and steps compiled for them.

`JitDevices` is one program over global arrays, to which the compiler adds the messages. Where the
arrays of the state are is all that data parallelism, split classes and split parameters (FSDP, or
ZeRO of stage 3; Rajbhandari et al. 2020) differ in. `PmapDevices` runs a copy of the step on each
device, with a name for the axis of devices.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from train.configuration import Config
from train.foundation.errors import UserError

AXIS, CLASSES = "devices", "classes"


class JitDevices:
    """A mesh [groups, class_devices] of devices, and one program for all of them.

    Args:
        class_devices: the devices of a group, which share the classes: each has a part of the head.
        split_parameters: whether the groups share each large array of the network.
        devices: all of them, which need not be here; None for those that JAX finds.

    Attributes:
        axis: None: a step is a function of the global batch.
        class_devices: the devices that share the classes.
        splits_parameters: as given.
        mesh: the devices of all processes. A process has whole groups, so it has all classes.
        rows: how a batch is split: over all devices, also those that share the classes.
        whole: all of an array on each device.
    """

    axis: str | None = None

    def __init__(
        self,
        class_devices: int = 1,
        *,
        split_parameters: bool = False,
        devices: Sequence[Any] | None = None,
    ) -> None:
        found = jax.devices() if devices is None else devices
        ordered = sorted(found, key=lambda device: (device.process_index, device.id))
        self.class_devices = class_devices
        self.mesh = Mesh(np.array(ordered).reshape(-1, class_devices), (AXIS, CLASSES))
        self.rows = NamedSharding(self.mesh, P((AXIS, CLASSES)))
        self.whole = NamedSharding(self.mesh, P())
        self.splits_parameters = split_parameters

    def shardings(self, tree: Any) -> Any:
        """Where the arrays of a state, or of anything else but a batch, are."""
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: NamedSharding(self.mesh, self._spec(path, np.shape(leaf))), tree
        )

    def _spec(self, path: tuple[Any, ...], shape: tuple[int, ...]) -> P:
        # The state of the optimizer and the averages have the names of the parameters.
        names = {getattr(key, "key", getattr(key, "name", None)) for key in path}
        if "batch_stats" in names or names.isdisjoint(("features", "head")):
            return P()
        has_classes = "head" in names and shape and shape[-1] % self.class_devices == 0
        return self._split(shape, CLASSES if has_classes and self.class_devices > 1 else None)

    def _split(self, shape: tuple[int, ...], last: str | None = None) -> P:
        """How parameters of a shape are split, whose last axis may be split already."""
        axes = [*[None] * (len(shape) - 1), last]
        if self.splits_parameters and len(shape) > 1:
            groups = self.mesh.shape[AXIS]
            free = [i for i, size in enumerate(shape) if axes[i] is None and size % groups == 0]
            if free:
                axes[max(free, key=lambda i: shape[i])] = AXIS
        return P(*axes) if any(axes) else P()

    def gather(self, parameters: Any) -> Any:
        """All parameters of a block on each device, within a step; their gradients are split."""
        constrain = jax.lax.with_sharding_constraint
        parts = jax.tree.map(
            lambda leaf: NamedSharding(self.mesh, self._split(leaf.shape)), parameters
        )
        gathered = jax.custom_vjp(lambda tree: constrain(tree, self.whole))
        gathered.defvjp(
            lambda tree: (constrain(tree, self.whole), None),
            lambda _, gradients: (constrain(gradients, parts),),
        )
        return gathered(parameters)

    def place(self, tree: Any) -> Any:
        """The arrays of a state of the host on the devices; every process has all of them."""
        return jax.tree.map(
            # Copies: on the CPU an array may be the memory that it was made of, which a step gets.
            lambda leaf, to: jax.make_array_from_callback(
                np.shape(leaf), to, lambda index: np.array(np.asarray(leaf)[index])
            ),
            tree,
            self.shardings(tree),
        )

    def make(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """The state that a function makes, in memory of the host; no device makes all of it."""
        shardings = self.shardings(jax.eval_shape(function, *inputs))
        return self.to_host(jax.jit(function, out_shardings=shardings)(*inputs))

    def to_host(self, tree: Any) -> Any:
        """A state that is on the devices, as NumPy arrays that the caller owns."""

        def held(leaf: jax.Array) -> jax.Array:
            if leaf.is_fully_addressable or leaf.is_fully_replicated:
                return leaf
            return jax.jit(lambda array: array, out_shardings=self.whole)(leaf)

        return jax.tree.map(np.array, jax.device_get(jax.tree.map(held, tree)))

    def split(self, share: Mapping[str, np.ndarray]) -> Any:
        """This process's share of a batch, as the global batch."""
        return {
            name: jax.make_array_from_process_local_data(self.rows, array)
            for name, array in share.items()
        }

    def join(self, outputs: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
        """The rows of this process of a step's outputs, on the host."""
        return {name: _own_rows(array) for name, array in outputs.items()}

    def of_batch(self, outputs: Any) -> Any:
        """Logits that were computed by classes, as rows with all classes, which any loss can take.

        Each device computes the logits of its classes for the rows of its group. It exchanges them
        for all classes of its own rows, so it never has more numbers than before.
        """
        by_class = NamedSharding(self.mesh, P(AXIS, CLASSES))
        for where in (by_class, self.rows):
            outputs = jax.lax.with_sharding_constraint(outputs, where)
        return outputs

    def compile_train_step(self, step: Callable[..., Any]) -> Any:
        """The step `(state, hyperparameters, batch) -> (state, metrics)`; the old state is lost."""

        def placed(*inputs: Any) -> Any:
            found = step(*inputs)
            return jax.lax.with_sharding_constraint(found, self.shardings(found))

        return jax.jit(placed, donate_argnums=0)

    def compile_eval_step(self, step: Callable[..., Any]) -> Any:
        """The step `(params, batch_stats, hyperparameters, batch)` to a result for each row."""
        return jax.jit(step, out_shardings=self.rows)


class PmapDevices:
    """Devices by `jax.pmap`: every array has a first axis over the devices of this process."""

    axis: str | None = AXIS
    class_devices = 1
    splits_parameters = False

    def place(self, tree: Any) -> Any:
        """A copy on each device, laid out like the state that a step returns.

        For another layout the step would be compiled again.
        """
        devices = np.array(jax.local_devices())
        first = NamedSharding(Mesh(devices, (AXIS,)), P(AXIS))
        return jax.tree.map(
            lambda leaf: jax.make_array_from_callback(
                (len(devices), *np.shape(leaf)), first, lambda _: np.array(leaf)[None]
            ),
            tree,
        )

    def make(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """The state that a function makes, in memory of the host."""
        return jax.device_get(function(*inputs))

    def to_host(self, tree: Any) -> Any:
        """The copy of the first device, as NumPy arrays that the caller owns."""
        first = jax.device_get(jax.tree.map(lambda leaf: leaf.addressable_data(0), tree))
        return jax.tree.map(lambda leaf: np.array(leaf[0]), first)

    def split(self, share: Mapping[str, np.ndarray]) -> Any:
        """Equal shares of this process's share of a batch."""
        count = jax.local_device_count()
        return {name: array.reshape(count, -1, *array.shape[1:]) for name, array in share.items()}

    def join(self, outputs: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
        """The rows of this process of a step's outputs, on the host."""
        return {name: np.concatenate(_own_rows(array)) for name, array in outputs.items()}

    def of_batch(self, outputs: Any) -> Any:
        """Each device has all classes."""
        return outputs

    def compile_train_step(self, step: Callable[..., Any]) -> Any:
        """The step `(state, hyperparameters, batch) -> (state, metrics)`; the old state is lost."""
        return jax.pmap(step, axis_name=AXIS, donate_argnums=0)

    def compile_eval_step(self, step: Callable[..., Any]) -> Any:
        """The step `(params, batch_stats, hyperparameters, batch)` to a result for each row."""
        return jax.pmap(step, axis_name=AXIS)


Devices = JitDevices | PmapDevices


def find(
    kind: str,
    class_devices: int | None,
    num_classes: int,
    devices: Sequence[Any] | None = None,
) -> Devices:
    """The devices of a run.

    Args:
        kind: `config.parallel`: pmap, mesh or fsdp.
        class_devices: the devices that share the classes; None for as many as possible with mesh,
            and 1 with fsdp. A finished run may be used on any devices: if they cannot be shared by
            this number, the largest number that divides it is taken.
        num_classes: the number of classes.
        devices: all of them, which need not be here; None for those that JAX finds.
    """
    if kind == "pmap":
        return PmapDevices()
    found = jax.devices() if devices is None else devices
    own = [device for device in found if device.process_index == jax.process_index()]
    wanted = class_devices or (num_classes if kind == "mesh" else 1)
    sharing = math.gcd(wanted, num_classes, len(own))
    return JitDevices(sharing, split_parameters=kind == "fsdp", devices=found)


def check(config: Config, num_devices: int, num_local: int) -> None:
    """Refuses a configuration that devices cannot share equally.

    Args:
        config: the configuration.
        num_devices: all devices.
        num_local: those of a process.
    """
    if config.class_devices is not None and num_local % config.class_devices:
        raise UserError(
            field="config.class_devices",
            must_be=f"a divisor of {num_local}, the number of devices of a process",
            got=config.class_devices,
        )
    factors = {
        "devices": num_devices,
        "config.optimizer.accumulation_steps": config.optimizer.accumulation_steps,
        "the pairs of config.dataset.mixup": 2 if config.dataset.mixup > 0 else 1,
    }
    if config.dataset.batch_size % math.prod(factors.values()):
        told = " times ".join(f"{n} ({what})" for what, n in factors.items() if n > 1)
        raise UserError(
            field="config.dataset.batch_size",
            must_be=f"a multiple of {told}",
            got=config.dataset.batch_size,
        )


def _own_rows(array: jax.Array) -> np.ndarray:
    """What the devices of this process have of an array that is split along its first axis."""
    parts = {shard.index[0].start or 0: shard.data for shard in array.addressable_shards}
    return np.concatenate([np.asarray(parts[start]) for start in sorted(parts)])
