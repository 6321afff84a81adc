"""The one file that knows devices: copies the state to each, splits batches, runs steps on all."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from flax import jax_utils
from jax.experimental import multihost_utils

from train.errors import UserError

AXIS_NAME = "devices"


def check_batch_size(batch_size: int) -> None:
    """Refuses a batch that the devices cannot share equally."""
    devices = jax.local_device_count()
    if batch_size % devices:
        raise UserError(
            f"config.dataset.batch_size must be a multiple of the {devices} devices; "
            f"got {batch_size}"
        )


def replicate(state: Any) -> Any:
    """A copy of the state on every device."""
    return jax_utils.replicate(state)


def to_host(state: Any) -> Any:
    """The state as one copy of NumPy arrays."""
    return jax.device_get(jax_utils.unreplicate(state))


def first_copy(metrics: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Metrics that are the same on every device, taken from the first, without waiting for them."""
    return {name: value[0] for name, value in metrics.items()}


def split(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The batch [n, ...] as [devices, n / devices, ...]."""
    devices = jax.local_device_count()
    return {name: array.reshape(devices, -1, *array.shape[1:]) for name, array in batch.items()}


def join(outputs: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
    """Outputs [devices, n / devices, ...] on the host as [n, ...]."""
    return {
        name: np.asarray(array).reshape(-1, *array.shape[2:]) for name, array in outputs.items()
    }


def gather(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The shares [n / processes, ...] of all processes, one after another, as [n, ...]."""
    if jax.process_count() == 1:
        return batch
    return multihost_utils.process_allgather(batch, tiled=True)


def compile_train_step(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step on every device at once; the old state's memory is given up to the new one."""
    return jax.pmap(step, axis_name=AXIS_NAME, donate_argnums=0)


def compile_eval_step(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step on every device at once."""
    return jax.pmap(step, axis_name=AXIS_NAME)
