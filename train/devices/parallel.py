"""The one file that knows devices: copies the state to each, splits batches, runs steps on all."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from flax import jax_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from typing_extensions import override

from train.foundation.errors import UserError

AXIS_NAME = "devices"


class Devices(ABC):
    """All devices of all processes, each with a copy of the state and a share of every batch."""

    @abstractmethod
    def replicate(self, state: Any) -> Any:
        """A copy of the state on every device."""

    @abstractmethod
    def to_host(self, state: Any) -> Any:
        """What is the same on every device, as one copy of NumPy arrays that the caller owns."""

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
        return jax_utils.replicate(state)

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
    """Devices by `jax.shard_map`: arrays are global and span the devices of all processes."""

    def __init__(self) -> None:
        mesh = Mesh(np.array(jax.devices()), (AXIS_NAME,))
        self._mesh = mesh
        self._replicated = NamedSharding(mesh, PartitionSpec())
        self._split = NamedSharding(mesh, PartitionSpec(AXIS_NAME))

    @override
    def replicate(self, state: Any) -> Any:
        return jax.tree.map(
            lambda leaf: jax.make_array_from_process_local_data(self._replicated, np.array(leaf)),
            state,
        )

    @override
    def to_host(self, state: Any) -> Any:
        return _first_shards(state)

    @override
    def split(self, batch: Mapping[str, np.ndarray]) -> Any:
        return {
            name: jax.make_array_from_process_local_data(self._split, array)
            for name, array in batch.items()
        }

    @override
    def join(self, outputs: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
        return _local_shards(outputs)

    @override
    def compile_train_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        inputs = (self._replicated, self._replicated, self._split)
        return jax.jit(self._mapped(step, inputs, out=self._replicated), donate_argnums=0)

    @override
    def compile_eval_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        inputs = (self._replicated, self._replicated, self._replicated, self._split)
        return jax.jit(self._mapped(step, inputs, out=self._split))

    def _mapped(
        self, step: Callable[..., Any], inputs: tuple[NamedSharding, ...], *, out: NamedSharding
    ) -> Callable[..., Any]:
        return jax.shard_map(
            step,
            mesh=self._mesh,
            in_specs=tuple(sharding.spec for sharding in inputs),
            out_specs=out.spec,
            # With the check, the gradients of replicated parameters arrive summed over the devices,
            # and the step, which is also that of pmap, would take the sum for a mean.
            check_vma=False,
        )


DEVICES: dict[str, Callable[[], Devices]] = {"pmap": PmapDevices, "shard_map": ShardMapDevices}


def check_batch_size(batch_size: int, accumulation_steps: int, *, in_pairs: bool = False) -> None:
    """Refuses a batch that the devices, and the parts of each, cannot share equally.

    Args:
        batch_size: the size of the global batch.
        accumulation_steps: the number of parts of a device's share.
        in_pairs: whether a part must have an even number of examples.
    """
    devices = jax.device_count()
    if batch_size % (devices * accumulation_steps * (2 if in_pairs else 1)):
        factors = [f"the {devices} devices"] if devices > 1 else []
        if accumulation_steps > 1:
            factors.append(f"config.optimizer.accumulation_steps, {accumulation_steps}")
        if in_pairs:
            factors.append("2, because config.dataset.mixup takes pairs")
        raise UserError(
            f"config.dataset.batch_size must be a multiple of {' times '.join(factors)}; "
            f"got {batch_size}"
        )


def _first_shards(tree: Any) -> Any:
    """What the first device of this process holds."""
    shards = jax.device_get(jax.tree.map(lambda leaf: leaf.addressable_data(0), tree))
    # On the CPU what was fetched is the device's own memory, which the next step is given.
    return jax.tree.map(np.array, shards)


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
