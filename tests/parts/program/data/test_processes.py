"""Evaluation by two processes: every example once, and both get all of it."""

import socket
import subprocess
import sys

from tests.parts.program.forked import ROOT

# Seconds; a process whose peer is lost waits for it.
TIME_LIMIT = 240

PROGRAM = """
import sys
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
port, index = map(int, sys.argv[1:])
jax.distributed.initialize(f"localhost:{port}", 2, index, initialization_timeout=60)
import types
import jax.numpy as jnp
import numpy as np
from train.devices import devices as all_devices, processes
from train.data.batches import Batches
from train.data.classes import Classes
from train.data.examples import Examples
from train.data.streaming import stream
from train.scores import collecting

names = np.array([f"{number}.jpg" for number in range(21)], object)
images = np.arange(63, dtype=np.uint8).reshape(21, 1, 1, 3)
split = Examples.of_source(images, np.arange(21) % 3, ("a", "b", "c"), "here", names=names)
share = jax.process_index(), jax.process_count()

def step(params, batch_stats, hyperparameters, batch):
    scores = batch["images"].reshape(-1, 3).astype(jnp.float32)
    loss = scores[:, 0] / 3
    return {"loss": loss, "scores": scores, "ranks": batch["labels"]}

for kind in ("pmap", "mesh", "fsdp"):
    devices = all_devices.find(kind, 1, 3)
    nothing = devices.place({"nothing": jnp.zeros(1)})
    compiled = devices.compile_eval_step(step)
    found = collecting.rows(
        lambda params, batch_stats, batch: compiled(params, batch_stats, nothing, batch),
        nothing,
        nothing,
        stream(Batches(examples=split, size=8, share=share)),
        devices,
        split=split,
        num_classes=3,
    )
    found = collecting.collected(found, split, Classes.of(split.class_names))
    assert found.names.tolist() == names.tolist()
    np.testing.assert_array_equal(found.loss, np.arange(21))
    np.testing.assert_array_equal([found.labels, found.ranks], [np.arange(21) % 3] * 2)
    np.testing.assert_array_equal(found.values, np.arange(63).reshape(21, 3))

parts = []

def numbers(part):
    parts.append(part)
    return np.arange(part.start, part.stop, dtype=np.uint8)[:, None]

for number in (7, 1):
    found = processes.gather_parts(number, numbers)
    np.testing.assert_array_equal(found, np.arange(number)[:, None])
assert sum(map(len, parts)) == (5 if jax.process_index() == 0 else 3)
"""


def test_two_processes_evaluate_a_split():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    how = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, "-c", PROGRAM, str(port)]
    processes = [subprocess.Popen([*command, index], **how) for index in "01"]
    try:
        for process in processes:
            output, _ = process.communicate(timeout=TIME_LIMIT)
            assert process.returncode == 0, output
    finally:
        for process in processes:
            process.kill()
            # Reads to the end and closes the pipe, which is not to be left open by a failure.
            process.communicate()
