"""Several processes that train one classifier: how they connect and agree."""

import functools
import hashlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from train.devices import meeting
from train.devices.meeting import Address
from train.foundation.errors import UserError

# The longest wait for each other at the start, and the longest silence of a process before the
# others end, so that the death of a process is reported within a minute.
_START_SECONDS = 300
_SILENCE_SECONDS = 30
# More than any cluster has.
_MOST_PROCESSES = 2**20
# The longest wait of a process that ends early, for others that end early too.
_LEAVE_SECONDS = 10

# What the errors of the libraries between processes have in their messages.
_OF_CONNECTIONS = re.compile(r"Gloo|NCCL|Connection (closed|reset) by peer|coordination service")

# Longer than shared file systems remember that a folder is missing.
_SECONDS_TO_APPEAR = 35

# Set while JAX knows of other processes, but may not be asked for them yet.
_CONNECTING = threading.Event()

_Result = TypeVar("_Result")


def join_given(coordinator: str, num_processes: int, process_index: int) -> None:
    """Connects to the processes of one coordinator.

    Raises:
        UserError: the arguments do not describe processes, or not all of them connected.
    """
    address = Address.parse(coordinator)
    if num_processes > _MOST_PROCESSES:
        raise UserError(
            field="--num_processes", must_be=f"at most {_MOST_PROCESSES}", got=num_processes
        )
    if process_index >= num_processes:
        less = f"less than --num_processes, {num_processes}"
        raise UserError(field="--process_index", must_be=less, got=process_index)
    connect = functools.partial(
        _initialize,
        coordinator_address=coordinator,
        num_processes=num_processes,
        process_id=process_index,
        # Only the given arguments count; JAX does not look at the environment.
        cluster_detection_method="deactivate",
    )
    # The processes are beside each other: a proxy for the Internet does not lead to them.
    os.environ["no_grpc_proxy"] = address.host  # noqa: SIM112 (gRPC reads it in lower case)
    jax.config.update("jax_check_proxy_envs", False)
    _CONNECTING.set()
    meeting.meet(address, num_processes, process_index, connect, seconds=_START_SECONDS)
    _CONNECTING.clear()
    _hide_output_of_libraries()


def join_cluster() -> None:
    """Connects to the processes in the cluster's environment: Slurm, Open MPI, TPU, Kubernetes.

    Raises:
        UserError: the environment describes no cluster.
    """
    _initialize()
    _hide_output_of_libraries()


def check_joined() -> None:
    """Refuses devices of other processes to which this one is not connected.

    Raises:
        UserError: there are some; JAX finds the other hosts of a TPU pod by itself.
    """
    if jax.process_count() > 1 and not jax.distributed.is_initialized():
        raise UserError(
            f"this is process {jax.process_index()} of {jax.process_count()} of a TPU pod: give "
            "--cluster, with the same command on all of its hosts"
        )


def are_several() -> bool:
    """Whether there are other processes.

    It may be called at any time: only a process that has connected to others queries its devices.
    """
    if _CONNECTING.is_set() or not jax.distributed.is_initialized():
        return False
    return bool(jax.process_count() > 1)


def is_first() -> bool:
    """Whether this is process 0, which writes the files of the run."""
    return jax.process_index() == 0


def wait_for_others(place: str) -> None:
    """Returns when every process has called this with the same place."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(place)


def check_same(name: str, text: Callable[[], str]) -> None:
    """Raises `UserError` in every process unless the text is the same in all of them.

    Without the check the run would continue, and each process would train something else.
    """
    if jax.process_count() == 1:
        return
    digest = np.frombuffer(hashlib.sha256(text().encode()).digest(), np.uint8)
    digests = np.asarray(multihost_utils.process_allgather(digest))
    differing = np.flatnonzero((digests != digests[0]).any(axis=-1))
    if differing.size:
        raise UserError(
            f"{name} must be the same in all processes; in process {differing[0]} it differs from "
            "process 0"
        )


def check_shared(name: str, folder: Path) -> None:
    """Raises `UserError` in every process unless the folder is the same for all of them.

    Without the check each process would train to the end, and then miss the files of process 0.
    """
    if jax.process_count() == 1:
        return
    token = {"token": np.frombuffer(os.urandom(8), np.uint8)}
    mark = folder / f".{of_first(token)['token'].tobytes().hex()}"
    try:
        if is_first():
            folder.mkdir(parents=True, exist_ok=True)
            mark.touch()
        wait_for_others("mark")
        check_same(f"{name}, a folder that all share,", lambda: str(_appears(mark)))
    finally:
        if is_first():
            mark.unlink(missing_ok=True)


def _appears(mark: Path) -> bool:
    """Whether a file that process 0 has made is there for this process.

    Hazard: a client of NFS remembers for half a minute that a folder was missing. Choice: asks
    again for longer than that. Cost: so much later is a folder refused that is not shared.
    """
    for _ in range(_SECONDS_TO_APPEAR):
        if mark.exists():
            return True
        time.sleep(1)
    return mark.exists()


def is_of_lost_peer(error: BaseException) -> bool:
    """Whether an error is one of the connections to other processes, as when one of them ends."""
    # An OSError names a file or an address, whose name can have any of these words.
    is_of_system = isinstance(error, OSError)
    return are_several() and not is_of_system and _OF_CONNECTIONS.search(str(error)) is not None


def gather(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The shares [n / processes, ...] of all processes of some arrays, concatenated to [n, ...].

    All arrays are sent at once, as bytes: on CPUs the exchange of a small array takes as long as
    that of a large one. JAX would also send 64 bits as 32.
    """
    if jax.process_count() == 1:
        return arrays
    own = np.concatenate([_bytes_of(array) for array in arrays.values()])
    of_all = multihost_utils.process_allgather(own)
    found, end = {}, 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        shares = np.ascontiguousarray(of_all[:, start:end]).view(array.dtype)
        found[name] = shares.reshape(len(of_all) * len(array), *array.shape[1:])
    return found


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


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


def leave(code: int) -> NoReturn:
    """Ends this process early, after those that end early too.

    Process 0 runs the coordination service. When it ends first, JAX aborts the others, with another
    exit code than their own and a C++ stack trace.
    """
    farewell = threading.Thread(target=jax.distributed.shutdown, daemon=True)
    farewell.start()
    farewell.join(_LEAVE_SECONDS)
    os._exit(code)


def _initialize(**settings: Any) -> None:
    # Its handler would take SIGTERM from ours, and the process would live on.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            initialization_timeout=_START_SECONDS,
            heartbeat_timeout_seconds=_SILENCE_SECONDS,
            **settings,
        )
    except (RuntimeError, ValueError, OSError) as error:
        if "coordinator_address" in str(error):
            error = ValueError("the environment names no cluster that JAX knows")
        raise UserError(f"the processes did not find each other: {error}") from error


def _hide_output_of_libraries() -> None:
    """Hides what C++ prints on standard output: Gloo prints there whenever it connects."""
    ours = sys.stdout
    ours.flush()
    copy = os.fdopen(os.dup(1), "w", encoding=ours.encoding, errors=ours.errors)
    copy.reconfigure(line_buffering=bool(ours.line_buffering))
    sys.stdout = copy
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
