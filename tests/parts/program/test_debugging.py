"""Training runs with the settings of JAX that debug programs."""

import pytest

from tests.parts.program.forked import start

# The first stops a program at a NaN, and the second at a transfer that it does not announce.
SETTINGS = {"JAX_DEBUG_NANS": "1", "JAX_TRANSFER_GUARD": "disallow"}
ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1", **SETTINGS}


@pytest.mark.parametrize("parallel", ["pmap", "mesh"])
def test_training(tmp_path, parallel):
    done = start(
        "train.main",
        "--config=configs/digits.py",
        f"--config.parallel={parallel}",
        "--config.num_epochs=1",
        "--config.optimizer.decay_epochs=()",
        "--config.model.name=linear",
        "--config.eval.temperature=True",
        f"--workdir={tmp_path}/run",
        environment=ENVIRONMENT,
    )
    assert (done.returncode, done.stderr) == (0, "")
