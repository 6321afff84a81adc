"""Batches of large images, decoded ahead of time by threads or by processes of Grain's."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker

import grain
from absl import flags

from train.data.batches import Batch, EvaluationBatches, TrainingBatches

# Batches that wait for the program, of each process.
_READ_AHEAD = 2
# More threads would wait for Python's lock; each holds a batch.
_MAX_THREADS = 16


@dataclass(frozen=True)
class _Source:
    """Batches as Grain wants them: counted from 0, and a number of them."""

    batches: TrainingBatches | EvaluationBatches
    numbers: range

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Batch:
        return self.batches[self.numbers[index]]


def stream(
    batches: TrainingBatches | EvaluationBatches, numbers: range, *, num_workers: int
) -> Iterator[Batch]:
    """The batches of these numbers, in order, the same for any number of workers.

    Args:
        batches: the batches by their number.
        numbers: which of them.
        num_workers: the processes that make them, each one whole batches; with none, as many
            threads of this process as there are cores, and 16 at most.
    """
    dataset = grain.MapDataset.source(_Source(batches, numbers))
    threads = 1 if num_workers else min(os.cpu_count() or 1, _MAX_THREADS)
    iterable = dataset.to_iter_dataset(
        grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads + _READ_AHEAD)
    )
    if num_workers:
        if not flags.FLAGS.is_parsed():
            # Grain asks for flags of absl's, and not every program has parsed any.
            flags.FLAGS.mark_as_parsed()
        # Batches come through pipes: shared memory would have to hold several of each process, and
        # containers have 64 MiB of it; and of each process Grain leaves one batch behind.
        iterable = grain.experimental.WithOptionsIterDataset(
            iterable, grain.experimental.DatasetOptions(min_shm_size=sys.maxsize)
        )
        iterable = iterable.mp_prefetch(
            grain.MultiprocessingOptions(
                num_workers=num_workers, per_worker_buffer_size=_READ_AHEAD
            ),
            worker_init_fn=_end_with_the_program,
        )
    # Threads of this process need not be kept from its signals.
    starting = _signals_blocked if num_workers else contextlib.nullcontext
    with starting():
        iterator = iter(iterable)
    try:
        with starting():
            first = list(itertools.islice(iterator, 1))
        yield from first
        # An error in a worker comes out here as it was raised there.
        yield from iterator
    finally:
        iterator.close()


def _end_with_the_program(_index: int, _count: int) -> None:
    """Has a process end when the program was killed: it would wait for it without end."""

    def wait() -> None:
        program = multiprocessing.parent_process()
        if program is not None:
            program.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Lets processes that start here never receive what a terminal or a scheduler sends to all.

    One that a signal ended would be waited for without end; the program ends them itself.
    """
    # It would unblock the signals when it starts.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
