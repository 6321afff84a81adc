"""Commands run with the settings of JAX that debug programs."""

import shutil

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.forked import start

# The first stops a program at a NaN, and the second at a transfer that it does not announce.
SETTINGS = {"JAX_DEBUG_NANS": "1", "JAX_TRANSFER_GUARD": "disallow"}
ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1", **SETTINGS}


def run(module, *arguments, environment=ENVIRONMENT):
    done = start(module, *arguments, environment=environment)
    assert (done.returncode, done.stderr) == (0, ""), (module, arguments)


@pytest.mark.parametrize("parallel", ["pmap", "mesh"])
def test_training(finished_run, tmp_path, parallel):
    run(
        "train.main",
        "--config=configs/digits.py",
        f"--config.dataset.data_dir={finished_run.parent}/data",
        f"--config.parallel={parallel}",
        "--config.num_epochs=1",
        "--config.optimizer.decay_epochs=()",
        "--config.model.name=linear",
        "--config.eval.temperature=True",
        f"--workdir={tmp_path}/run",
    )


def test_the_use_of_a_finished_run(finished_run, tmp_path):
    workdir = shutil.copytree(finished_run, tmp_path / "run")
    (tmp_path / "images").mkdir()
    for index in range(3):
        pixels = np.full((8, 8), 80 * index, np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{index}.png")
    of_run, images = f"--workdir={workdir}", f"--images={tmp_path}/images"
    scores = f"{tmp_path}/scores.npz"
    run("train.evaluate", of_run, "--rules=all", f"--scores={scores}")
    run("train.evaluate", f"--logits={scores}", "--calibration=half", "--ks=1,2")
    run("train.predict", of_run, images, "--coverage=0.9", f"--out={tmp_path}/sets.jsonl")
    run("train.export", of_run, "--average_k=2", f"--out={tmp_path}/program")
    choice = ("--format=tau_normalized", "--select_by=few_top_1_accuracy")
    done = start("train.export", of_run, f"--out={tmp_path}/a", *choice, environment=ENVIRONMENT)
    # No digit has few images: NaN is the answer, and no fault.
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "'few_top_1_accuracy' has no value" in done.stderr
    choice = ("--format=tau_normalized", "--select_by=top_1_accuracy")
    run("train.export", of_run, f"--out={tmp_path}/b", *choice)
    run("train.embed", of_run, images, f"--out={tmp_path}/embedded.npz")
