"""Batches that are made ahead of time, by threads or by processes."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker

from train.data import reading
from train.data.batches import Batch, Batches
from train.foundation.errors import UserError

# How many finished batches are kept ready.
_READ_AHEAD = 2


def stream(
    batches: Batches, numbers: range | None = None, *, num_workers: int = 0
) -> Generator[Batch, None, None]:
    """Some batches in order, which are the same for any number of workers; close it to stop.

    Args:
        batches: the batches by their number.
        numbers: the numbers of the batches; None for those of an epoch.
        num_workers: the number of processes that decode images; each decodes complete batches.
            With 0, threads of this process decode.

    Raises:
        UnreadableImageError: an image cannot be read.
    """
    numbers = range(len(batches)) if numbers is None else numbers
    if not batches.examples.are_encoded:
        # Gathering takes a hundredth of a step: reading ahead would gain nothing.
        yield from (batches[number] for number in numbers)
    elif num_workers == 0:
        yield from reading.in_threads(batches.__getitem__, numbers, ahead=_READ_AHEAD)
    else:
        yield from _in_processes(batches, numbers, num_workers)


def _in_processes(batches: Batches, numbers: range, num_workers: int) -> Iterator[Batch]:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(num_workers, context, _start, (batches,))
    waiting: deque[Future[Batch]] = deque()
    try:
        for number in numbers:
            with contextlib.nullcontext() if waiting else _starting_workers():
                waiting.append(pool.submit(_read, number))
            if len(waiting) > num_workers + _READ_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            "a process that decodes images was ended from outside, perhaps for lack of memory; "
            "fewer of config.dataset.num_workers need less"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


# What a worker reads from.
_of_worker: list[Batches] = []


def _start(batches: Batches) -> None:
    """What a worker does before it decodes: it ends with the program, even a killed one."""
    _of_worker.append(batches)
    program = multiprocessing.parent_process()

    def wait() -> None:
        if program is not None:
            program.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _read(number: int) -> Batch:
    return _of_worker[0][number]


@contextlib.contextmanager
def _starting_workers() -> Iterator[None]:
    """Blocks SIGINT and SIGTERM in the processes that start here; the program ends them itself.

    A terminal or a scheduler sends these signals to all processes.
    """
    # Started now, as it unblocks the signals when it starts.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
