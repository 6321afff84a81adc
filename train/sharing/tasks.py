"""The place of this process among those that a cluster has started, by its environment.

A job array starts its tasks one by one, each as a job of its own. The tasks of `srun`, of `mpirun`
and of a TPU pod start together.
"""

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from train.foundation.errors import UserError
from train.sharing.shard import Shard


@dataclass(frozen=True)
class Tasks:
    """The tasks that were started together; this process is one of them.

    Attributes:
        what: what started them, in words.
        shard: which task this is, and how many there are.
    """

    what: str
    shard: Shard

    @property
    def in_words(self) -> str:
        """Which task this is, in words."""
        return f"task {self.shard.index} of {self.shard.number}, from 0, of {self.what}"


@dataclass(frozen=True)
class _Array:
    """The variables of a job array.

    Attributes:
        what: the array, in words.
        index: the variable with the index of this task.
        first: the one with the first index; None if that is 0.
        last: the one with the last index; None if `count` has the number of tasks.
        step: the one with the difference of two indices; None if that is 1 or does not have a
            variable.
        count: the one with the number of tasks.
    """

    what: str
    index: str
    first: str | None = None
    last: str | None = None
    step: str | None = None
    count: str | None = None

    def find(self, environment: Mapping[str, str]) -> Tasks | None:
        """The tasks; None outside of an array, and in one of a single task."""
        index, first, last, step, count = (
            None if name is None else _number(environment.get(name))
            for name in (self.index, self.first, self.last, self.step, self.count)
        )
        first = first or 0
        if index is None:
            return None
        if count is None:
            if last is None:
                return None
            count = (last - first) // (step or 1) + 1
        if count <= 1:
            return None
        if last is not None:
            step = (last - first) // (count - 1)
        place, rest = divmod(index - first, step or 1)
        if rest or not 0 <= place < count:
            raise UserError(
                f"{self.what} has indices without an order ({self.index}={index}, {count} tasks "
                f"from {first}); give --shard=i/n"
            )
        return Tasks(self.what, Shard(place, count))


_ARRAYS = (
    _Array(
        "a Slurm job array",
        "SLURM_ARRAY_TASK_ID",
        first="SLURM_ARRAY_TASK_MIN",
        last="SLURM_ARRAY_TASK_MAX",
        count="SLURM_ARRAY_TASK_COUNT",
    ),
    _Array(
        "a job array of Grid Engine",
        "SGE_TASK_ID",
        first="SGE_TASK_FIRST",
        last="SGE_TASK_LAST",
        step="SGE_TASK_STEPSIZE",
    ),
    _Array(
        "a job array of AWS Batch", "AWS_BATCH_JOB_ARRAY_INDEX", count="AWS_BATCH_JOB_ARRAY_SIZE"
    ),
    _Array("a job of Google Batch", "BATCH_TASK_INDEX", count="BATCH_TASK_COUNT"),
)
# Only `srun` sets one of them. A batch script has SLURM_PROCID=0 and the tasks that `srun` would
# start.
_OF_A_STEP = ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST")
# The seconds that the metadata server of a machine may take; it is on the same machine.
_METADATA_SECONDS = 5


def in_array(environment: Mapping[str, str] = os.environ) -> Tasks | None:
    """The tasks of the job array that this process is in; None without several.

    Raises:
        UserError: the indices of the array have no order.
    """
    found = (array.find(environment) for array in _ARRAYS)
    return next((tasks for tasks in found if tasks is not None), None)


def started_together(environment: Mapping[str, str] = os.environ) -> Tasks | None:
    """The tasks that were started together with this process; None without several."""
    found = (
        # First, because Open MPI starts what it needs on other nodes with `srun`.
        _of_mpirun(environment),
        _of_srun(environment),
        _of_pod(environment),
    )
    return next((tasks for tasks in found if tasks is not None), None)


def refuse_to_train_apart(environment: Mapping[str, str] = os.environ) -> None:
    """Refuses to train if `started_together` finds tasks, and no flag has their purpose.

    Raises:
        UserError: it finds some.
    """
    if (found := started_together(environment)) is not None:
        raise UserError(
            f"this is {found.in_words}: --cluster trains one classifier on all of them, and "
            "--nocluster one on each, with a --workdir of its own"
        )


def every(environment: Mapping[str, str] = os.environ) -> Tasks | None:
    """The tasks of `in_array`, of `started_together`, or of an array of such; None without several.

    Raises:
        UserError: the indices of the array have no order.
    """
    array, together = in_array(environment), started_together(environment)
    if array is None or together is None:
        return array or together
    inner, outer = together.shard, array.shard
    shard = Shard(outer.index * inner.number + inner.index, outer.number * inner.number)
    return Tasks(f"{array.what} with {together.what}", shard)


def without_tasks(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment for a process of its own, which shares no work with other tasks."""
    ranks = {"SLURM_PROCID", "OMPI_COMM_WORLD_RANK", *(array.index for array in _ARRAYS)}
    return {name: value for name, value in environment.items() if name not in ranks}


def of_cluster(environment: Mapping[str, str] = os.environ) -> Tasks:
    """The tasks that --cluster stands for.

    Raises:
        UserError: the environment has no tasks, or only one.
    """
    found = every(environment) or _of_metadata(environment)
    if found is not None:
        return found
    index = environment.get("JOB_COMPLETION_INDEX")
    given = "i/n" if index is None else f"{index}/n, with the completions of the job as n"
    raise UserError(f"--cluster: the environment does not name several tasks; give --shard={given}")


def _of_srun(environment: Mapping[str, str]) -> Tasks | None:
    rank = _number(environment.get("SLURM_PROCID"))
    if rank is None or (rank == 0 and not any(name in environment for name in _OF_A_STEP)):
        return None
    number = _number(environment.get("SLURM_STEP_NUM_TASKS"))
    return _of_numbers("srun", rank, number or _number(environment.get("SLURM_NTASKS")))


def _of_mpirun(environment: Mapping[str, str]) -> Tasks | None:
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    return _of_numbers("mpirun", *(_number(environment.get(name)) for name in names))


def _of_pod(environment: Mapping[str, str]) -> Tasks | None:
    hosts = environment.get("TPU_PROCESS_ADDRESSES") or environment.get("TPU_WORKER_HOSTNAMES", "")
    return _of_numbers(
        "a TPU pod", _number(environment.get("TPU_WORKER_ID")), len(hosts.split(","))
    )


def _of_metadata(environment: Mapping[str, str]) -> Tasks | None:
    """The hosts of a TPU pod, from the metadata server of Google Cloud."""
    host = environment.get("GCE_METADATA_IP", "metadata.google.internal")
    address = f"http://{host}/computeMetadata/v1/instance/attributes"

    def read(name: str) -> str:
        asked = urllib.request.Request(f"{address}/{name}", headers={"Metadata-Flavor": "Google"})
        with urllib.request.urlopen(asked, timeout=_METADATA_SECONDS) as answer:
            text: str = answer.read().decode()
        return text

    try:
        rank, hosts = read("agent-worker-number"), read("worker-network-endpoints")
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return _of_numbers("a TPU pod", _number(rank.strip()), len(hosts.split(",")))


def _of_numbers(what: str, rank: int | None, number: int | None) -> Tasks | None:
    if rank is None or number is None or not 0 <= rank < number or number == 1:
        return None
    return Tasks(what, Shard(rank, number))


def _number(text: str | None) -> int | None:
    """An integer; None for another text, such as the "undefined" of Grid Engine."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None
