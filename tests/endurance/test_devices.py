"""The program on 1, 2, 4 and 8 devices, in each way of sharing, in one process and in two."""

import functools
import json
import signal

import jax
import numpy as np
import pytest

from tests.parts.program.forked import start
from tests.parts.program.program import Program, checkpoints, start_together
from train.run.checkpoints import read_selected

# Three epochs of the digits: 57 steps. The rate is low because both losses have gradients that
# jump: if a rounding swaps two scores of almost the same size, a coordinate moves by 1 / M, or a
# class becomes a candidate. Without a jump the parameters differ by 1e-8. One jump has moved a
# parameter by 2.1e-5 at a rate of 0.0001, which is 2.1e-6 at this one: the bound has room for four.
FLAGS = ("--config.num_epochs=3", "--config.optimizer.learning_rate=0.00001")

pytestmark = pytest.mark.usefixtures("standard_promotion")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


def program(loss, parallel):
    config = [f"--config=configs/digits.py:{loss}", f"--config.parallel={parallel}"]
    if parallel == "mesh":
        config.append("--config.class_devices=2")
    return Program((*config, *FLAGS))


def left(workdir):
    """The parameters and statistics, and the losses, that a run has left."""
    step = checkpoints(workdir)[-1]
    state = read_selected(workdir / "checkpoints", step)
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines]
    return step, (state["params"], state["batch_stats"], losses)


@pytest.fixture(scope="module")
def one_device(folder):
    @functools.cache
    def run(loss):
        program(loss, "pmap").complete(folder / loss, devices=1)
        return left(folder / loss)

    return run


def check_equal(found, expected):
    step, values = found
    assert step == expected[0] == 57
    jax.tree.map(
        lambda found, expected: np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5),
        values,
        expected[1],
    )


@pytest.mark.parametrize(
    ("loss", "parallel", "devices"),
    [
        ("noised_top_k_hinge", "pmap", 2),
        ("noised_top_k_hinge", "mesh", 4),
        ("noised_top_k_hinge", "pmap", 8),
        ("average_k", "pmap", 4),
        ("role", "pmap", 4),
        ("noised_top_k_hinge", "mesh", 2),
        ("average_k", "mesh", 8),
        ("noised_top_k_hinge", "fsdp", 8),
    ],
)
def test_several_devices_equal_one(tmp_path, one_device, loss, parallel, devices):
    program(loss, parallel).complete(tmp_path / "run", devices=devices)
    check_equal(left(tmp_path / "run"), one_device(loss))


@pytest.mark.parametrize(
    ("loss", "parallel"),
    [
        ("average_k", "pmap"),
        ("average_k", "mesh"),
        ("average_k", "fsdp"),
    ],
)
def test_two_processes_of_two_devices_equal_one_device(tmp_path, one_device, loss, parallel):
    workdir = tmp_path / "run"
    with start_together(program(loss, parallel), workdir) as pair:
        for process in pair:
            done = process.end()
            assert done.returncode == 0, done.stderr
    check_equal(left(workdir), one_device(loss))
    assert json.loads((workdir / "results.json").read_text())["devices"] == 4
    # Only the first process writes: one file of events, and every line of metrics once.
    assert len(list((workdir / "tensorboard").iterdir())) == 1
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    assert len(set(lines)) == len(lines)
    # What the other process prints is its library's.
    assert "epoch" not in done.stdout


def test_a_mesh_run_continues_on_one_device_and_is_evaluated_on_any(tmp_path, one_device):
    loss, workdir = "role", tmp_path / "run"
    mesh = Program((f"--config=configs/digits.py:{loss}", "--config.parallel=mesh", *FLAGS))
    # The third save is that of the last epoch.
    done = mesh.run(workdir, devices=8, moment="before the checksums")
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    assert "continuing after epoch 2" in mesh.complete(workdir, devices=1).stdout
    check_equal(left(workdir), one_device(loss))
    reports = []
    for devices in (1, 2, 8):
        done = start(
            "train.evaluate",
            f"--workdir={workdir}",
            f"--out={tmp_path}/{devices}.json",
            environment={"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"},
        )
        assert done.returncode == 0, done.stderr
        reports.append(json.loads((tmp_path / f"{devices}.json").read_text()))
    first, *others = reports
    for other in others:
        assert other["loss"] == pytest.approx(first["loss"], rel=1e-5)
        for name, row in other["sets"].items():
            # A rounding may turn an example.
            assert row["coverage"] == pytest.approx(first["sets"][name]["coverage"], abs=0.01)
