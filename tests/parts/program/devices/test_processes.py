"""Several processes meet, agree and exchange arrays; compiled programs are kept."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils

from configs import digits
from train.devices import processes
from train.foundation.errors import UserError
from train.run import experiment

# Seconds. JAX itself waits for a lost process for half a minute.
TIME_LIMIT = 120
ROOT = Path(__file__).parents[4]
JOINED = """
import sys
import jax
import numpy as np
from train.devices import processes
from train.foundation.errors import UserError

jax.config.update("jax_platforms", "cpu")
port, index = map(int, sys.argv[1:])
processes.join(f"localhost:{port}", 2, index)
assert processes.are_several() and processes.is_first() == (index == 0)
own = {
    "mask": np.arange(4) % 2 == index,
    "examples": 2**40 + np.arange(4) + index,
    "none": np.zeros((4, 0), np.int32),
}
found = processes.gather(own)
assert found["examples"].tolist() == [2**40 + i + j for j in range(2) for i in range(4)]
assert found["mask"].sum() == 4 and found["none"].shape == (8, 0)
assert processes.of_first({"index": np.array(index)})["index"] == 0
calls = []
def compute(part):
    calls.append(part)
    return np.arange(part.start, part.stop)[:, None]
for number in (7, 1):
    assert processes.gather_parts(number, compute)[:, 0].tolist() == list(range(number))
assert sum(map(len, calls)) == (5 if index == 0 else 3)
processes.check_same("the colour", lambda: "red")
try:
    processes.check_same("the colour", lambda: str(index))
except UserError as error:
    print(error)
processes.leave()
"""


def run_two(program):
    """Starts a program as process 0 and 1; their outputs, once both have ended well."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    how = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    pair = [subprocess.Popen([sys.executable, "-c", program, port, i], **how) for i in "01"]
    try:
        outputs = [process.communicate(timeout=TIME_LIMIT)[0] for process in pair]
        assert [process.returncode for process in pair] == [0, 0], outputs
        return outputs
    finally:
        for process in pair:
            process.kill()
            process.communicate()


def test_two_processes_meet_agree_and_exchange_arrays():
    for output in run_two(JOINED):
        assert "the colour must be the same in all processes; in process 1 it differs" in output


def test_arrays_of_several_types_are_sent_at_once_and_arrive_exactly(monkeypatch):
    rng = np.random.default_rng(0)
    own = {
        # Every other row, which are apart in memory.
        "scores": rng.normal(size=(8, 3)).astype(np.float32)[::2],
        "weights": rng.normal(size=(4, 2)),
        "features": rng.normal(size=(4, 5)).astype(jnp.bfloat16),
    }
    sent = []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(
        multihost_utils, "process_allgather", lambda one: sent.append(one) or np.stack([one, one])
    )
    found = processes.gather(own)
    assert len(sent) == 1
    for name, array in own.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], np.concatenate([array, array]))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("localhost", 2, 0), "--coordinator must be HOST:PORT .*; got 'localhost'"),
        (("localhost:70000", 2, 0), "--coordinator must be HOST:PORT"),
        (("localhost:1234", 2, 2), "--process_index must be less than --num_processes, 2; got 2"),
    ],
)
def test_what_describes_no_processes_is_refused(arguments, named):
    with pytest.raises(UserError, match=named):
        processes.join(*arguments)


SLURM = {"SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_COUNT": "4"}
SRUN = {"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}
POD = {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b,c"}
MPI = {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "7"}


@pytest.mark.parametrize(
    ("variables", "tasks"),
    [
        ({}, None),
        (SLURM, "4 tasks of a Slurm job array"),
        (SLURM | {"SLURM_ARRAY_TASK_COUNT": "1"}, None),
        (SRUN | {"SLURM_STEP_NUM_TASKS": "2"}, "2 tasks of srun"),
        # A batch script that has not called srun.
        (SRUN, None),
        (MPI, "8 tasks of mpirun"),
        (POD, "3 tasks of a TPU pod"),
        ({"SGE_TASK_ID": "undefined", "SGE_TASK_LAST": "9"}, None),
    ],
)
def test_a_task_of_several_is_told_by_its_variables(monkeypatch, variables, tasks):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if tasks is None:
        processes.refuse_tasks("give --flag", in_arrays=True)
        return
    with pytest.raises(UserError, match=f"{tasks}: give --flag"):
        processes.refuse_tasks("give --flag", in_arrays=True)
    # Each task of an array trains a run of its own.
    if variables == SLURM:
        processes.refuse_tasks("give --flag")


CACHED = """
import json
import jax
from train.devices import processes
processes.use_compilation_cache()
jax.jit(lambda x: x + 1)(1.0)
print(json.dumps(jax.config.jax_compilation_cache_dir))
"""


def test_programs_are_kept_where_the_user_says(tmp_path):
    unset = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    for given, folder in (
        ({"XDG_CACHE_HOME": str(tmp_path)}, tmp_path / "topk_jax" / "compiled"),
        ({"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "mine")}, tmp_path / "mine"),
    ):
        environment = {**unset, "JAX_PLATFORMS": "cpu", **given}
        command = [sys.executable, "-c", CACHED]
        found = subprocess.check_output(command, cwd=ROOT, env=environment, timeout=TIME_LIMIT)
        assert json.loads(found) == str(folder)
    assert [*tmp_path.glob("topk_jax/compiled/*-cache")]


def test_a_large_cache_is_emptied(tmp_path, monkeypatch):
    (tmp_path / "one-cache").write_bytes(bytes(100))
    processes.bound(tmp_path)
    assert [*tmp_path.iterdir()]
    monkeypatch.setattr(processes, "_MOST_CACHED_BYTES", 99)
    processes.bound(tmp_path)
    assert not tmp_path.exists()
    processes.bound(tmp_path)


class EnoughError(Exception):
    """All has been compared."""


def test_a_run_compares_all_that_it_starts_from(tmp_path, monkeypatch):
    def compared(**fields):
        config = json.loads(digits.get_config().to_json()) | fields
        config["model"]["name"] = "mlp"
        texts = {}

        def record(name, text):
            texts[name] = text()
            if name == "the state to train from":
                raise EnoughError

        monkeypatch.setattr(processes, "check_same", record)
        monkeypatch.setattr(processes, "are_several", lambda: True)
        with pytest.raises(EnoughError), jax.numpy_dtype_promotion("standard"):
            experiment.run(config, tmp_path / "run")
        return texts

    found, others = compared(), compared(seed=1)
    # The split of the digits is not drawn with the run's seed.
    same = [name for name in found if found[name] == others[name]]
    assert same == ["what --workdir holds", "the data set"]
    assert len(found) == 4
