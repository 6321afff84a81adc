"""The tasks of a cluster that one of its jobs starts, by the variables that each task gets."""

import os

from train.foundation.errors import UserError

# What starts the tasks, the variable with their number or the list of their hosts, and the variable
# that tells them apart. A batch script of Slurm has only the latter of `srun`.
_TOGETHER = (
    ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("a TPU pod", "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID"),
)
_IN_ARRAYS = (
    ("a Slurm job array", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_ID"),
    ("a job array of Grid Engine", "SGE_TASK_LAST", "SGE_TASK_ID"),
    ("a job array of AWS Batch", "AWS_BATCH_JOB_ARRAY_SIZE", "AWS_BATCH_JOB_ARRAY_INDEX"),
    ("a job of Google Batch", "BATCH_TASK_COUNT", "BATCH_TASK_INDEX"),
)


def refuse_several(how: str, *, in_arrays: bool = False) -> None:
    """Raises `UserError` if a job has started several tasks, because all would do the same.

    Args:
        how: the flags that say what each task does.
        in_arrays: whether the tasks of a job array, which start one by one, would do so too.
    """
    for what, number, index in (*_TOGETHER, *(_IN_ARRAYS if in_arrays else ())):
        given = os.environ.get(number, "")
        tasks = int(given) if given.isdecimal() else given.count(",") + 1
        if tasks > 1 and os.environ.get(index, "").isdecimal():
            raise UserError(f"this is one of {tasks:,} tasks of {what}: {how}")


def environment_of_one() -> dict[str, str]:
    """The environment for a process of this task that does work of its own."""
    of_starters = {index for what, _, index in _TOGETHER if what != "a TPU pod"}
    return {name: value for name, value in os.environ.items() if name not in of_starters}
