"""Rows of the same name in tests/parts that take long."""

import json

import pytest

from tests.parts.program.power_cut import power_cut_at
from tests.parts.program.test_mixed_batches import STEPS_PER_EPOCH, config  # noqa: F401 (fixtures)
from train import experiment

pytestmark = pytest.mark.usefixtures("standard_promotion")


def test_a_run_that_was_broken_off_ends_like_one_that_was_not(config, tmp_path):  # noqa: F811
    expected = experiment.run(config, tmp_path / "unbroken")
    with power_cut_at(STEPS_PER_EPOCH + 2):
        experiment.run(config, tmp_path / "run")
    found = experiment.run(config, tmp_path / "run")
    for name in ("parameters_digest", "best_epoch", "validation", "test"):
        assert json.dumps(found[name]) == json.dumps(expected[name])
