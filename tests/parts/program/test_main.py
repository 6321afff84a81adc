"""The real command in a process of its own: a short run, and places and devices that are not."""

import json
import os
import subprocess
import sys

from tests.compilation import QUICK_FLAGS
from tests.parts.program.forked import ROOT, check_mistakes
from train.__main__ import COMMANDS

CONFIG = "--config=configs/digits.py"
# A limit for a hang; the command takes some ten seconds.
TIMEOUT = 300


TWO_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}


def as_a_user(*arguments, tmp_path):
    """Starts the command as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "train.main", f"--workdir={tmp_path / 'run'}", *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "XLA_FLAGS": f"{TWO_DEVICES['XLA_FLAGS']} {QUICK_FLAGS}",
            "TFDS_DATA_DIR": str(tmp_path / "data"),
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def test_the_command_trains_and_says_where_everything_is(tmp_path):
    workdir = tmp_path / "run"
    few = ("--config.num_epochs=2", "--config.eval.ks=(1,3)", "--config.model.name=mlp")
    done = as_a_user(CONFIG, *few, tmp_path=tmp_path)
    assert done.returncode == 0, done.stderr
    results = json.loads((workdir / "results.json").read_text())
    assert results["devices"] == 2
    assert results["config"]["eval"]["ks"] == [1, 3]
    for name in ("config.json", "metrics.jsonl", "results.json", "learning_curves.png"):
        assert (workdir / name).is_file()
        assert str(workdir / name) in done.stdout
    assert "epoch 2/2" in done.stdout
    # The numbers are printed with a note which of them the loss optimizes.
    assert "does not optimise the top-1" in " ".join(done.stdout.split())
    assert "\x1b" not in done.stdout


def test_a_workdir_that_cannot_be_a_folder_is_a_mistake(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    impossible = {
        f"{os.devnull}/run": "Not a directory",
        loop: "Too many levels of symbolic links",
        tmp_path / ("a" * 256): "File name too long",
    }
    check_mistakes(
        "train.main",
        [
            ([CONFIG, f"--workdir={path}"], f"{path} cannot be one: {reason}")
            for path, reason in impossible.items()
        ],
    )


def test_devices_that_are_not_there_are_a_mistake(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "abacus")
    done = as_a_user(CONFIG, tmp_path=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: JAX finds no devices with JAX_PLATFORMS='abacus': ")


def test_every_command_is_in_the_list_of_them():
    files = [*(ROOT / "train").glob("*.py"), *(ROOT / "train").glob("*/__main__.py")]
    found = {
        file.parent.name if file.stem == "__main__" else file.stem
        for file in files
        if "command_line.run(main)" in file.read_text()
    }
    assert found == set(COMMANDS)


def test_tasks_that_start_together_are_told_to_say_how(tmp_path):
    srun = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"}
    arguments = (CONFIG, f"--workdir={tmp_path / 'run'}")
    told = (
        "this is task 1 of 4, from 0, of srun: --cluster trains one classifier on all of them, and "
        "--nocluster one on each, with a --workdir of its own"
    )
    check_mistakes("train.main", [(arguments, told)], srun)
    # Alone, the next mistake is told.
    check_mistakes(
        "train.main", [((*arguments, "--nocluster", "--config.seed=-1"), "config.seed")], srun
    )
    assert not (tmp_path / "run").exists()
