"""The real command in a process of its own: a short run, and every mistake in one line."""

import json
import os
import subprocess
import sys

import pytest

from tests.compilation import QUICK_FLAGS
from tests.parts.program.forked import ROOT, check_mistakes, error_lines, start
from train.__main__ import COMMANDS

CONFIG = "--config=configs/digits.py"
LATENTS = "--config=configs/synthetic_latents.py"
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


MISTAKES = {
    "a long flag": (["--" + "a" * 5000], "there is no flag with a name of 5,000 letters, --aaaa"),
    "a field of many parts": (
        [CONFIG, "--config." + "a." * 20_000 + "b=1"],
        "there is no flag with a name of 40,008 letters, --config.a.a.",
    ),
    "a value that Python cannot parse": (
        [CONFIG, "--config.eval.ks=" + "-" * 50_000 + "1"],
        "must be a tuple, such as (1,5)",
    ),
    "an integer of many digits": ([CONFIG, "--config.seed=" + "9" * 5000], "an integer"),
    "unknown field": ([CONFIG, "--config.los.name=focal"], "did you mean 'config.loss.name'?"),
    "unknown field of a loss": (
        [CONFIG, "--config.loss.epsilonn=2"],
        "no field 'config.loss.epsilonn'; did you mean 'config.loss.epsilon'?",
    ),
    "field before the recipe": (
        ["--config.num_epochs=1", CONFIG],
        "--config=RECIPE must come before the field --config.num_epochs=1",
    ),
    "wrong type": ([CONFIG, "--config.num_epochs=many"], "config.num_epochs"),
    "unknown loss": ([CONFIG, "--config.loss.name=cross_entrop"], "did you mean 'cross_entropy'?"),
    "no loss of the recipe": (
        ["--config=configs/cifar100.py:adaboost"],
        "error: --config: the recipe has no loss 'adaboost'; after the colon, give",
    ),
    "unknown model": ([CONFIG, "--config.model.name=smallcnn"], "did you mean 'small_cnn'?"),
    "unknown data set": ([CONFIG, "--config.dataset.name=digit"], "did you mean 'digits'?"),
    "k out of range": ([CONFIG, "--config.loss.k=10"], "config.loss.k must be"),
    "batch size": ([CONFIG, "--config.dataset.batch_size=63"], "a multiple of the 2 devices"),
    "left-over argument": ([CONFIG, "resnet"], "unexpected argument 'resnet'"),
    "unknown flag": ([CONFIG, "--confg=1"], "confg"),
    "no configuration": ([], "--config is needed"),
    "no run to extend": ([CONFIG, "--extend"], "--extend needs a run in --workdir; "),
    "frozen, and a rate of its head": (
        [CONFIG, "--config.model.freeze=True", "--config.optimizer.head_learning_rate=0.1"],
        "config.optimizer.head_learning_rate must be None with config.model.freeze",
    ),
    "no earlier run": (
        [CONFIG, "--config.model.start_from=nowhere"],
        "config.model.start_from must be the workdir of a finished run; nowhere does not exist",
    ),
    "missing file": (["--config=configs/nothing.py"], "there is no configs/nothing.py"),
    "no get_config": (["--config=train/foundation/fields.py"], "has no function get_config()"),
    "not Python": (["--config=README.md"], "README.md, line "),
    "unlike any field": ([CONFIG, "--config.zzz=3"], "has no field 'config.zzz'"),
    "more examples than memory": (
        [LATENTS, f"--config.dataset.num_train={10**13}"],
        "the 10,000,000,000,000 examples of config.dataset.num_train need 1,280 TB of memory; this",
    ),
    "more images than memory": (
        ["--config=configs/synthetic_species.py", f"--config.dataset.num_test={10**13}"],
        "the 10,000,000,000,000 images of config.dataset.num_test need 30 PB of memory; this",
    ),
    "more units than memory": (
        [LATENTS, f"--config.model.width={10**9}"],
        "the 1,000,000,120,000,000,100 parameters of config.model, with the state of the "
        "optimizer, need 8,000 PB of memory; this machine has",
    ),
    "more units than JAX counts": ([LATENTS, f"--config.model.width={10**13}"], "from 1 to 10"),
    "more layers than are compiled": ([LATENTS, f"--config.model.depth={10**9}"], "from 1 to 100,"),
    "more samples than are drawn": ([CONFIG, f"--config.loss.num_samples={10**9}"], "from 1 to 10"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_two(tmp_path, mistake):
    arguments, message = MISTAKES[mistake]
    workdir = f"--workdir={tmp_path / 'run'}"
    done = start("train.main", workdir, *arguments, environment=TWO_DEVICES)
    assert done.returncode == 2, done.stderr
    lines = error_lines(done.stderr)
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


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


def test_main_stays_thin():
    assert len((ROOT / "train" / "main.py").read_text().splitlines()) <= 80


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
