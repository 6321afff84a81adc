"""Batches of large images, decoded ahead of time by Grain's threads or processes."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker, util
from queue import Empty

import grain
from absl import flags

from topk_jax import _console_imports
from train.data.batches import Batch, EvaluationBatches, TrainingBatches

# How many finished batches each process keeps ready.
_READ_AHEAD = 2
# Each thread holds a batch, and more threads would only wait for Python's lock.
_MAX_THREADS = 16


@dataclass(frozen=True)
class _Source:
    """Batches as Grain wants them: with a length, and indices from 0."""

    batches: TrainingBatches | EvaluationBatches
    numbers: range

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Batch:
        return self.batches[self.numbers[index]]


def stream(
    batches: TrainingBatches | EvaluationBatches, numbers: range, *, num_workers: int
) -> Iterator[Batch]:
    """Some batches in order, which are the same for any number of workers.

    Args:
        batches: the batches by their number.
        numbers: the numbers of the batches.
        num_workers: the number of processes that decode; each decodes complete batches. With 0,
            this process decodes in one thread for each core, and at most 16.
    """
    dataset = grain.MapDataset.source(_Source(batches, numbers))
    threads = 1 if num_workers else min(os.cpu_count() or 1, _MAX_THREADS)
    iterable = dataset.to_iter_dataset(
        grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads + _READ_AHEAD)
    )
    if num_workers:
        if not flags.FLAGS.is_parsed():
            # Grain reads absl's flags, which not every program has parsed.
            flags.FLAGS.mark_as_parsed()
        # Batches go through pipes. Shared memory would have to hold several batches per process,
        # and containers have 64 MiB of it. Grain would also leave one batch per process in it.
        iterable = grain.experimental.WithOptionsIterDataset(
            iterable, grain.experimental.DatasetOptions(min_shm_size=sys.maxsize)
        )
        iterable = iterable.mp_prefetch(
            grain.MultiprocessingOptions(
                num_workers=num_workers, per_worker_buffer_size=_READ_AHEAD
            ),
            worker_init_fn=_start,
        )
    # Threads of this process do not handle its signals.
    starting = _starting_workers if num_workers else contextlib.nullcontext
    with starting():
        iterator = iter(iterable)
    try:
        with starting():
            first = list(itertools.islice(iterator, 1))
        yield from first
        # An error in a worker is raised again here.
        yield from iterator
    finally:
        iterator.close()


def _start(_index: int, _count: int) -> None:
    """What a worker does before it decodes."""
    _end_with_the_program()
    _end_with_the_stream()


def _end_with_the_stream() -> None:
    """Has a worker read what it wrote last, when the program has closed the stream.

    A process ends when all that it put into a queue is in the pipe. No other process reads these
    batches, which are larger than a pipe. Grain would wait for 25 seconds for each of the workers,
    one after another, and kill it.
    """
    # No public attribute has the queue. Without it, workers end as late as without this function.
    queue = getattr(multiprocessing.current_process(), "_kwargs", {}).get("buffer")
    if queue is None:
        return

    def read() -> None:
        # macOS does not have the size.
        with contextlib.suppress(NotImplementedError):
            while queue.qsize():
                # The program may have read the last one in the meantime.
                with contextlib.suppress(Empty):
                    queue.get(timeout=0.1)

    # Before the queue is closed, which has a priority of 10.
    util.Finalize(None, read, exitpriority=20)


def _end_with_the_program() -> None:
    """Ends a worker when the program was killed; otherwise it would wait for ever."""

    def wait() -> None:
        program = multiprocessing.parent_process()
        if program is not None:
            program.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextlib.contextmanager
def _starting_workers() -> Iterator[None]:
    """Blocks SIGINT and SIGTERM in the processes that start here; the program ends them itself.

    A terminal or a scheduler sends these signals to all processes. The program would wait for ever
    for a worker that a signal has ended.
    """
    with _console_imports.starting_processes():
        # Started now, as it unblocks the signals when it starts.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
