"""Several tasks of a cluster are told by the variables that it sets."""

import pytest

from train.devices import tasks
from train.foundation.errors import UserError

SLURM = {"SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_COUNT": "4"}
SRUN = {"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}
POD = {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b,c"}
STARTED = {
    "nothing": ({}, None),
    "a Slurm job array": (SLURM, 4),
    "a Slurm job array of one": (SLURM | {"SLURM_ARRAY_TASK_COUNT": "1"}, None),
    "srun": (SRUN | {"SLURM_STEP_NUM_TASKS": "2"}, 2),
    "a batch script before srun": (SRUN, None),
    "mpirun": ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"}, 8),
    "Grid Engine": ({"SGE_TASK_ID": "5", "SGE_TASK_LAST": "7"}, 7),
    "Grid Engine without an array": (
        {"SGE_TASK_ID": "undefined", "SGE_TASK_LAST": "undefined"},
        None,
    ),
    "AWS Batch": ({"AWS_BATCH_JOB_ARRAY_INDEX": "0", "AWS_BATCH_JOB_ARRAY_SIZE": "3"}, 3),
    "Google Batch": ({"BATCH_TASK_INDEX": "2", "BATCH_TASK_COUNT": "3"}, 3),
    "a TPU pod": (POD, 3),
    "a TPU pod of one host": (POD | {"TPU_WORKER_HOSTNAMES": "localhost"}, None),
}


@pytest.mark.parametrize("name", STARTED)
def test_several_tasks_are_refused(name, monkeypatch):
    environment, number = STARTED[name]
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    if number is None:
        tasks.refuse_several("give --flag", in_arrays=True)
        return
    with pytest.raises(UserError, match=rf"^this is one of {number} tasks of .*: give --flag$"):
        tasks.refuse_several("give --flag", in_arrays=True)


def test_runs_of_an_array_and_of_other_tasks_train_alone(monkeypatch):
    for variable, value in (SLURM | SRUN | {"SLURM_STEP_NUM_TASKS": "2"}).items():
        monkeypatch.setenv(variable, value)
    environment = tasks.environment_of_one()
    with pytest.raises(UserError, match="2 tasks of srun"):
        tasks.refuse_several("")
    monkeypatch.delenv("SLURM_PROCID")
    assert "SLURM_PROCID" not in environment
    # Each task of an array is a run of its own.
    tasks.refuse_several("")
