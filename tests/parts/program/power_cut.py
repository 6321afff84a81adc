"""Runs that are broken off in the process of the tests."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from train.run.reporting import Reporter


class PowerCutError(Exception):
    pass


@contextmanager
def power_cut_at(last: int) -> Iterator[None]:
    """A context in which a run must end, as by a power cut, when it has made a step."""
    original = Reporter.training_step

    def training_step(self, step, metrics):
        if step == last:
            raise PowerCutError
        original(self, step, metrics)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reporter, "training_step", training_step)
        with pytest.raises(PowerCutError):
            yield
