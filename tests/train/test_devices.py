"""The program on 1, 2, 4 and 8 devices, by pmap and shard_map, in one process and in two."""

import functools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

ROOT = Path(__file__).parents[2]
# Seconds; a process whose peer is lost waits for it.
TIME_LIMIT = 240
# Three epochs of the digits: 57 steps. The rate is low because both losses have gradients that
# jump: where a rounding swaps two scores of almost the same size, a coordinate moves by 1 / M, or a
# class becomes a candidate. At this rate one such jump moves no parameter by more than 1e-5; at the
# recipe's it does, and after it the two runs part.
FLAGS = ("--config.num_epochs=3", "--config.optimizer.learning_rate=0.0001")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("standard_promotion")]


def start(loss, workdir, *flags, devices, parallel):
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "train.main", f"--config=configs/digits.py:{loss}"),
            *(f"--workdir={workdir}", f"--config.parallel={parallel}", *FLAGS, *flags),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(processes):
    try:
        for process in processes:
            output, _ = process.communicate(timeout=TIME_LIMIT)
            assert process.returncode == 0, output
    finally:
        for process in processes:
            process.kill()


def free_port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def left(workdir):
    """The parameters and statistics, and the losses, that a run has left."""
    steps = [int(path.name) for path in (workdir / "checkpoints").iterdir() if path.name.isdigit()]
    folder = workdir / "checkpoints" / str(max(steps)) / "state"
    state = ocp.StandardCheckpointer().restore(folder.absolute())
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines]
    return state["step"], (state["params"], state["batch_stats"], losses)


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    @functools.cache
    def run(loss):
        workdir = tmp_path_factory.mktemp("one") / loss
        finish([start(loss, workdir, devices=1, parallel="pmap")])
        return left(workdir)

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
        ("noised_balanced", "pmap", 2),
        ("noised_balanced", "shard_map", 4),
        ("noised_balanced", "pmap", 8),
        ("average_k", "shard_map", 2),
        ("average_k", "pmap", 4),
        ("average_k", "shard_map", 8),
        ("role", "pmap", 4),
    ],
)
def test_several_devices_equal_one(tmp_path, one_device, loss, parallel, devices):
    finish([start(loss, tmp_path, devices=devices, parallel=parallel)])
    check_equal(left(tmp_path), one_device(loss))


@pytest.mark.parametrize(
    ("loss", "parallel"), [("average_k", "pmap"), ("noised_balanced", "shard_map")]
)
def test_two_processes_of_two_devices_equal_one_device(tmp_path, one_device, loss, parallel):
    port = free_port()
    processes = [
        start(
            loss,
            tmp_path / "run",
            *(f"--coordinator=localhost:{port}", "--num_processes=2", f"--process_index={index}"),
            devices=2,
            parallel=parallel,
        )
        for index in range(2)
    ]
    finish(processes)
    check_equal(left(tmp_path / "run"), one_device(loss))
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["devices"] == 4
    # Only the first process writes: one file of events, and every line of metrics once.
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(set(lines)) == len(lines)
