"""A few training steps of a configuration, on the devices that it asks for."""

import jax
import numpy as np

# Of each device, to the loop.
REQUEST = 7


def make(parts, num_steps):
    """The state on the devices after some steps, and the metrics of each step on the host."""
    devices = parts.devices
    state = devices.place(parts.initial_state())
    batches = parts.data.training_batches(0)
    metrics = []
    for _ in range(num_steps):
        batch = {**next(batches), "request": np.full(jax.local_device_count(), REQUEST, np.int32)}
        state, of_step = parts.train_step(state, devices.split(batch))
        metrics.append(devices.to_host(of_step))
    batches.close()
    return state, metrics
