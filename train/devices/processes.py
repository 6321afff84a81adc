"""Several processes that train one classifier: how they meet, and what one of them does alone."""

import hashlib
import os
import threading
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from train.foundation.errors import UserError

# How long the processes wait for each other at the start, and how long one may be silent before the
# others end: that of a peer's death, told within a minute.
_START_SECONDS = 300
_SILENCE_SECONDS = 30
# How long a process that ends early waits for others that may be about to do the same.
_LEAVE_SECONDS = 10

_Result = TypeVar("_Result")


def join_given(coordinator: str, num_processes: int, process_index: int) -> None:
    """Joins the processes that were given one address, their number, and an index each.

    Raises:
        UserError: they did not all come.
    """
    _initialize(
        coordinator_address=coordinator,
        num_processes=num_processes,
        process_id=process_index,
        # What was given is all there is: no look at the environment.
        cluster_detection_method="deactivate",
    )


def join_cluster() -> None:
    """Joins the processes that the cluster's environment names: Slurm, Open MPI, TPU, Kubernetes.

    Raises:
        UserError: the environment names none.
    """
    _initialize()


def are_several() -> bool:
    """Whether there are other processes; asks no device, so that it may be called at any time."""
    return bool(jax.distributed.is_initialized()) and jax.process_count() > 1


def is_first() -> bool:
    """Whether this is the process that writes."""
    return jax.process_index() == 0


def first_then_others(action: Callable[[], _Result]) -> _Result:
    """Does something in the first process, and then in the others, which may find it done."""
    if is_first():
        result = action()
        wait_for_others("first")
    else:
        wait_for_others("first")
        result = action()
    return result


def wait_for_others(place: str) -> None:
    """Returns when every process has come to this place."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(place)


def check_same(name: str, text: Callable[[], str]) -> None:
    """Raises `UserError` in every process unless all of them have the same text of that name.

    What differs would not stop the run: it would train, in each process, towards something else.
    """
    if jax.process_count() == 1:
        return
    digest = np.frombuffer(hashlib.sha256(text().encode()).digest(), np.uint8)
    digests = np.asarray(multihost_utils.process_allgather(digest))
    differing = np.flatnonzero((digests != digests[0]).any(axis=-1))
    if differing.size:
        raise UserError(
            f"{name} must be the same in all processes; in process {differing[0]} it is not what "
            "it is in process 0"
        )


def gather(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The shares [n / processes, ...] of all processes, one after another, as [n, ...]."""
    if jax.process_count() == 1:
        return arrays
    return multihost_utils.process_allgather(arrays, tiled=True)


def leave(code: int) -> NoReturn:
    """Ends this process early, which ends the others; those that end as well do so in peace.

    The first process takes the meeting point with it, and whoever is still there is aborted: with
    another exit code than its own, and a trace of the C++ stack.
    """
    farewell = threading.Thread(target=jax.distributed.shutdown, daemon=True)
    farewell.start()
    farewell.join(_LEAVE_SECONDS)
    os._exit(code)


def _initialize(**settings: Any) -> None:
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
