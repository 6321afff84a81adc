"""Which task of a cluster a process is, by the variables that the cluster sets."""

import pytest

from train.foundation.errors import UserError
from train.sharing import tasks
from train.sharing.shard import Shard

SLURM = {"SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "7"}
SRUN = {"SLURM_NTASKS": "8", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
FOUND = {
    "nothing": ({}, None),
    "an array": ({**SLURM, "SLURM_ARRAY_TASK_ID": "5"}, (2, 4)),
    "srun": ({**SRUN, "SLURM_PROCID": "1"}, (1, 2)),
    "a batch script before srun": ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, None),
    "srun in an array": (
        {**SLURM, **SRUN, "SLURM_ARRAY_TASK_ID": "3", "SLURM_PROCID": "1"},
        (3, 8),
    ),
    "Open MPI in a job of Slurm": (
        {
            **SRUN,
            "SLURM_PROCID": "0",
            "OMPI_COMM_WORLD_RANK": "5",
            "OMPI_COMM_WORLD_SIZE": "8",
        },
        (5, 8),
    ),
    "Grid Engine": (
        {
            "SGE_TASK_ID": "5",
            "SGE_TASK_FIRST": "1",
            "SGE_TASK_LAST": "8",
            "SGE_TASK_STEPSIZE": "2",
        },
        (2, 4),
    ),
    "AWS Batch": ({"AWS_BATCH_JOB_ARRAY_INDEX": "0", "AWS_BATCH_JOB_ARRAY_SIZE": "3"}, (0, 3)),
    "Google Batch": ({"BATCH_TASK_INDEX": "2", "BATCH_TASK_COUNT": "3"}, (2, 3)),
    "a pod": ({"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b,c"}, (1, 3)),
    "a pod of one host": ({"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}, None),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_environment_says_which_task_this_is(name):
    environment, expected = FOUND[name]
    found = tasks.every(environment)
    assert (None if found is None else found.shard) == (expected and Shard(*expected))
    if found is not None:
        assert tasks.every(tasks.without_tasks(environment)) is None or name == "a pod"


def test_indices_without_an_order_are_refused():
    environment = {**SLURM, "SLURM_ARRAY_TASK_ID": "2"}
    with pytest.raises(UserError, match=r"indices without an order.*give --shard=i/n"):
        tasks.every(environment)


def test_a_cluster_that_says_nothing_is_refused():
    # Nothing listens there.
    environment = {"GCE_METADATA_IP": "127.0.0.1:9"}
    with pytest.raises(UserError, match=r"does not name several tasks; give --shard=i/n$"):
        tasks.of_cluster(environment)
    with pytest.raises(UserError, match=r"give --shard=3/n, with the completions of the job as n"):
        tasks.of_cluster({**environment, "JOB_COMPLETION_INDEX": "3"})


@pytest.mark.parametrize("text", ["4/4", "0/0", "1", "-1/4", "a/b", "0/9999999"])
def test_shards_that_cannot_be_are_refused(text):
    with pytest.raises(UserError, match=r"^--shard must be i/n, with n from 1 to .*; got"):
        Shard.parse(text)


@pytest.mark.parametrize(("units", "number"), [(0, 2), (3, 9), (7, 4), (100, 9)])
def test_shares_are_consecutive_and_have_every_unit_once(units, number):
    shares = [Shard(index, number).share(units) for index in range(number)]
    assert [unit for share in shares for unit in share] == list(range(units))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
