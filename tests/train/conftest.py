"""What the tests of the program share."""

import json
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from ml_collections import ConfigDict

from configs import digits
from train import experiment

# Commands: they define flags of the same names as other commands, which modules here import.
collect_ignore = [
    *("interrupted.py", "small_photographs.py", "small_resnets.py"),
    *("prediction/small_command.py", "prediction/small_embed.py", "prediction/small_published.py"),
]


@pytest.fixture(scope="module")
def standard_promotion() -> Iterator[None]:
    """For tests of code that calls optax, whose step schedule compares floats with integers."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory, run_seed: int) -> Path:
    """The workdir of a short, finished run; copy it to write into it."""
    folder = tmp_path_factory.mktemp("finished")
    config: ConfigDict = digits.get_config("noised_balanced")
    config.seed = run_seed
    config.num_epochs = 2
    config.dataset.data_dir = str(folder / "data")
    plain = json.loads(config.to_json())
    with jax.numpy_dtype_promotion("standard"):
        experiment.run(plain, folder / "run")
    return folder / "run"
