"""What the host sees of steps, some steps late, and the time that data kept the devices idle."""

import numpy as np
import pytest

from train.devices.parallel import PmapDevices
from train.training.steps_in_flight import StepsInFlight
from train.training.stop_signals import StopSignals
from train.workdir.progress import Progress
from train.workdir.reporting import SilentReporter


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.seconds = 0.0

    def perf_counter(self):
        return self.seconds


class Ready(np.ndarray):
    """A number that the devices have made, or are still at."""

    def is_ready(self):
        return not self[()] > 1


class OneDevice(PmapDevices):
    """What is of one device stays as it is."""

    def split(self, batch):
        return batch

    def to_host(self, state):
        return state


def test_waiting_is_the_time_for_data_while_no_step_is_being_made(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("train.training.steps_in_flight.time", clock)

    def batches():
        while True:
            clock.seconds += 2
            yield {"examples": np.zeros(1, np.int32)}

    # The loss stands for what the devices do: above 1 they are still at the step.
    losses = iter([0.0, 3.0, 0.0, 0.0])

    def train_step(state, batch):
        loss = np.array(next(losses), np.float32).view(Ready)
        clock.seconds += 1
        metrics = {"loss": loss, "gradient_norm": 0.0, "parameter_norm": 0.0}
        return state, {**metrics, "request": batch["request"].max()}

    steps = StepsInFlight(train_step, OneDevice(), SilentReporter(), StopSignals(None))
    for number in (1, 2, 3):
        steps.dispatch(None, number, batches())
    progress = steps.drain(Progress())
    # Before the first step they had nothing to do; before the third they were at the second.
    assert (progress.seconds, progress.waiting) == pytest.approx((9, 4))
    steps.restart()
    steps.dispatch(None, 4, batches())
    progress = steps.drain(progress)
    assert (progress.seconds, progress.waiting) == pytest.approx((12, 6))
