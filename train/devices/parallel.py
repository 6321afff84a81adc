"""The one file that knows devices: copies the state to each, splits batches, runs steps on all."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import numpy as np
from flax import jax_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from train.foundation.errors import UserError

AXIS_NAME = "devices"


class Devices(Protocol):
    """All devices of all processes, each with a copy of the state and a share of every batch."""

    def replicate(self, state: Any) -> Any:
        """A copy of the state on every device."""

    def to_host(self, state: Any) -> Any:
        """What is the same on every device as one copy of NumPy arrays, which are the caller's."""

    def split(self, batch: Mapping[str, np.ndarray]) -> Any:
        """This process's share [n, ...] of a batch, as equal shares on its devices."""

    def join(self, outputs: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
        """What this process's devices made of their shares, on the host as [n, ...]."""

    def compile_train_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step on every device at once; the old state's memory is given up to the new one."""

    def compile_eval_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step, of parameters, statistics and a batch, on every device at once."""


class PmapDevices:
    """Devices by `jax.pmap`: on the host every array has a first axis for this process's."""

    def replicate(self, state: Any) -> Any:
        """A copy of the state on every device."""
        return jax_utils.replicate(state)

    def to_host(self, state: Any) -> Any:
        """What is the same on every device as one copy of NumPy arrays, which are the caller's."""
        return jax.tree.map(lambda leaf: leaf[0], _first_shards(state))

    def split(self, batch: Mapping[str, np.ndarray]) -> Any:
        """This process's share [n, ...] of a batch, as equal shares on its devices."""
        devices = jax.local_device_count()
        return {name: array.reshape(devices, -1, *array.shape[1:]) for name, array in batch.items()}

    def join(self, outputs: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
        """What this process's devices made of their shares, on the host as [n, ...]."""
        return {
            name: array.reshape(-1, *array.shape[2:])
            for name, array in _local_shards(outputs).items()
        }

    def compile_train_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step on every device at once; the old state's memory is given up to the new one."""
        return jax.pmap(step, axis_name=AXIS_NAME, donate_argnums=0)

    def compile_eval_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step, of parameters, statistics and a batch, on every device at once."""
        return jax.pmap(step, axis_name=AXIS_NAME)


class ShardMapDevices:
    """Devices by `jax.shard_map`: arrays are whole, and span the devices of all processes."""

    def __init__(self) -> None:
        mesh = Mesh(np.array(jax.devices()), (AXIS_NAME,))
        self._mesh = mesh
        self._replicated = NamedSharding(mesh, PartitionSpec())
        self._split = NamedSharding(mesh, PartitionSpec(AXIS_NAME))

    def replicate(self, state: Any) -> Any:
        """A copy of the state on every device."""
        return jax.tree.map(
            lambda leaf: jax.make_array_from_process_local_data(self._replicated, np.array(leaf)),
            state,
        )

    def to_host(self, state: Any) -> Any:
        """What is the same on every device as one copy of NumPy arrays, which are the caller's."""
        return _first_shards(state)

    def split(self, batch: Mapping[str, np.ndarray]) -> Any:
        """This process's share [n, ...] of a batch, as equal shares on its devices."""
        return {
            name: jax.make_array_from_process_local_data(self._split, array)
            for name, array in batch.items()
        }

    def join(self, outputs: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
        """What this process's devices made of their shares, on the host as [n, ...]."""
        return _local_shards(outputs)

    def compile_train_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step on every device at once; the old state's memory is given up to the new one."""
        return jax.jit(self._mapped(step, (self._replicated, self._split)), donate_argnums=0)

    def compile_eval_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step, of parameters, statistics and a batch, on every device at once."""
        everywhere = (self._replicated, self._replicated, self._split)
        return jax.jit(self._mapped(step, everywhere, out=self._split))

    def _mapped(
        self,
        step: Callable[..., Any],
        shardings: tuple[NamedSharding, ...],
        out: NamedSharding | None = None,
    ) -> Callable[..., Any]:
        return jax.shard_map(
            step,
            mesh=self._mesh,
            in_specs=tuple(sharding.spec for sharding in shardings),
            out_specs=(out or self._replicated).spec,
            # With the check, the gradients of replicated parameters come summed over the devices,
            # and the step, which is that of pmap, would take the sum for a mean.
            check_vma=False,
        )


DEVICES: dict[str, Callable[[], Devices]] = {"pmap": PmapDevices, "shard_map": ShardMapDevices}


def check_batch_size(batch_size: int, accumulation_steps: int) -> None:
    """Refuses a batch that the devices, and the parts of each, cannot share equally."""
    devices = jax.device_count()
    if batch_size % (devices * accumulation_steps):
        factors = [f"the {devices} devices"] if devices > 1 else []
        if accumulation_steps > 1:
            factors.append(f"config.optimizer.accumulation_steps, {accumulation_steps}")
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
