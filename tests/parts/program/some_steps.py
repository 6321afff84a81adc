"""A few training steps of a configuration, on the devices that it asks for."""

from train.training import stop_signals


def make(assembly, num_steps):
    """The state on the devices after some steps, and the metrics of each step on the host."""
    devices = assembly.devices
    state = devices.replicate(assembly.initial_state())
    batches = assembly.data.training_batches(0)
    metrics = []
    for _ in range(num_steps):
        batch = stop_signals.with_request(next(batches), stop_signals.NOTHING)
        state, of_step = assembly.train_step(state, devices.split(batch))
        metrics.append(devices.to_host(of_step))
    batches.close()
    return state, metrics
