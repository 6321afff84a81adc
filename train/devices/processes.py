"""Several processes that train one classifier, and the compiled programs that they keep."""

import contextlib
import hashlib
import os
import re
import shutil
import signal
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from train.foundation.console import show_line
from train.foundation.errors import UserError, first_line

# The longest wait for each other at the start and at the end, and the longest silence of a process
# before the others end, so that the death of a process is reported within a minute.
_START_SECONDS, _END_SECONDS, _SILENT_SECONDS = 300, 10, 30
# What the errors of the libraries between processes have in their messages.
_OF_CONNECTIONS = re.compile(r"Gloo|NCCL|Connection (closed|reset) by peer|coordination service")
_MOST_CACHED_BYTES = 2**30
# What starts tasks, the variable with their number or the list of their hosts, and the variable
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


def join(coordinator: str, num_processes: int, index: int) -> None:
    """Connects to the processes of one coordinator.

    Args:
        coordinator: HOST:PORT of process 0.
        num_processes: how many processes there are.
        index: which one this is, from 0.

    Raises:
        UserError: the arguments do not describe processes, or process 0 may not have the port.
    """
    port = re.fullmatch(r".+:([0-9]{1,5})", coordinator)
    if port is None or not 1 <= int(port[1]) <= 65535:
        must_be = "HOST:PORT with a port from 1 to 65535"
        raise UserError(field="--coordinator", must_be=must_be, got=coordinator)
    if index >= num_processes:
        less = f"less than --num_processes, {num_processes}"
        raise UserError(field="--process_index", must_be=less, got=index)
    show_line(f"waiting for {num_processes} processes at {coordinator}, at most {_START_SECONDS} s")
    # Only what is given counts; JAX does not look at the environment.
    _initialize(
        coordinator_address=coordinator,
        num_processes=num_processes,
        process_id=index,
        cluster_detection_method="deactivate",
    )


def join_cluster() -> None:
    """Connects to the processes in the cluster's environment: Slurm, Open MPI, TPU, Kubernetes.

    Raises:
        UserError: the environment describes no cluster.
    """
    _initialize()


def _initialize(**given: Any) -> None:
    # JAX's own handler would take SIGTERM from ours, and the process would live on.
    jax.config.update("jax_enable_preemption_service", False)
    # JAX waits in C++, which no handler of Python interrupts.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    caught = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in caught:
        signal.signal(number, signal.SIG_DFL)
    try:
        jax.distributed.initialize(
            initialization_timeout=_START_SECONDS,
            heartbeat_timeout_seconds=_SILENT_SECONDS,
            shutdown_timeout_seconds=_END_SECONDS,
            **given,
        )
    except (RuntimeError, ValueError, OSError) as error:
        reason = first_line(error)
        if "coordinator_address" in reason:
            reason = "the environment names no cluster that JAX knows"
        elif "RPC server" in reason:
            reason = "another program has the port of --coordinator"
        raise UserError(f"the processes did not find each other: {reason}") from error
    finally:
        for number, handler in caught.items():
            signal.signal(number, handler)


def refuse_tasks(how: str, *, in_arrays: bool = False) -> None:
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


def are_several() -> bool:
    """Whether this process has connected to others; devices are not queried before."""
    return bool(jax.distributed.is_initialized()) and jax.process_count() > 1


def is_first() -> bool:
    """Whether this is process 0, which writes the files of the run."""
    return jax.process_index() == 0


def is_of_lost_peer(error: BaseException) -> bool:
    """Whether an error is one of the connections to other processes, as when one of them ends."""
    # An OSError names a file or an address, whose name can have any of these words.
    is_of_system = isinstance(error, OSError)
    return are_several() and not is_of_system and _OF_CONNECTIONS.search(str(error)) is not None


def leave() -> None:
    """Ends the connections, after those that end too: JAX aborts them if process 0 ends first."""
    farewell = threading.Thread(target=jax.distributed.shutdown, daemon=True)
    farewell.start()
    farewell.join(2 * _END_SECONDS)


def check_same(name: str, text: Callable[[], str]) -> None:
    """Raises `UserError` in every process unless the text is the same in all of them.

    Without the check the run would continue, and each process would train something else.
    """
    if jax.process_count() == 1:
        return
    digest = np.frombuffer(hashlib.sha256(text().encode()).digest(), np.uint8)
    digests = gather({"digest": digest[None]})["digest"]
    differing = np.flatnonzero((digests != digests[0]).any(axis=-1))
    if differing.size:
        raise UserError(
            f"{name} must be the same in all processes; in process {differing[0]} it differs from "
            "process 0"
        )


def gather(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The shares [n / processes, ...] of all processes of some arrays, concatenated to [n, ...].

    All arrays are sent at once, as bytes: on CPUs the exchange of a small array takes as long as
    that of a large one. JAX would also send 64 bits as 32.
    """
    if jax.process_count() == 1:
        return arrays
    rows = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays.values()]
    of_all = multihost_utils.process_allgather(np.concatenate(rows))
    found, end = {}, 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        shares = np.ascontiguousarray(of_all[:, start:end]).view(array.dtype)
        found[name] = shares.reshape(len(of_all) * len(array), *array.shape[1:])
    return found


def of_first(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of process 0, in all processes; each gives arrays of the same shapes."""
    found = gather({name: array[None] for name, array in arrays.items()})
    return {name: np.asarray(array)[0] for name, array in found.items()}


def gather_parts(number: int, compute: Callable[[range], np.ndarray]) -> np.ndarray:
    """The results of a function for `number` things, [number, ...]; each process computes a part.

    Args:
        number: the number of things.
        compute: called with the indices of a part, returns an array [n, ...].
    """
    each = -(-number // jax.process_count())
    start = min(jax.process_index() * each, number)
    own = compute(range(start, min(start + each, number)))
    # All parts have the same length.
    padding = [(0, each - len(own)), *[(0, 0)] * (own.ndim - 1)]
    return gather({"part": np.pad(own, padding)})["part"][:number]


def use_compilation_cache() -> None:
    """Has this process keep compiled programs in the user's cache folder, once for all runs.

    The folder that JAX's own settings name wins. An entry that a killed process has half written
    is compiled again.
    """
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    # JAX defines its options at run time.
    if jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined]
        return
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(caches) / "topk_jax" / "compiled"
    bound(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # Most of the time goes into many small compilations.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def bound(folder: Path) -> None:
    """Empties a folder of compiled programs that has more than a gigabyte.

    JAX's bound, `jax_compilation_cache_max_size`, reads a file for each program whenever it keeps
    another one: half a second for each of them, when there are 5,000.
    """
    with contextlib.suppress(OSError):
        if sum(file.stat().st_size for file in os.scandir(folder)) > _MOST_CACHED_BYTES:
            shutil.rmtree(folder, ignore_errors=True)
