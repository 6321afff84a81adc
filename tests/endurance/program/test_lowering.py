"""Rows of the same name in tests/parts that take long."""

import pytest

from tests.parts.program.test_lowering import WITH_ANY_LOSS, assembly_of, check_lowered, state_of
from train.training.losses import LOSSES


@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if loss.splits_classes])
def test_the_training_step_of_split_classes_is_lowered(loss, monkeypatch):
    argument = f"{WITH_ANY_LOSS}:{loss}"
    state = state_of(assembly_of(argument), monkeypatch)
    check_lowered(assembly_of(argument, class_devices=2), state)
