"""Starts work a little ahead of its use, and reads many images so in several threads."""

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from PIL import Image

Source = TypeVar("Source")
Work = TypeVar("Work")

_MOST_THREADS = 16


def in_threads(
    read: Callable[[Source], Work], sources: Iterable[Source], *, ahead: int
) -> Iterator[Work]:
    """What is read of each source, in their order: Pillow decodes without Python's lock.

    Args:
        read: reads one.
        sources: what to read.
        ahead: how many are read before they are wanted, beside one in each thread.
    """
    threads = min(os.cpu_count() or 1, _MOST_THREADS)
    with ThreadPoolExecutor(threads, thread_name_prefix="images") as executor:
        begun = (executor.submit(read, source) for source in sources)
        try:
            yield from map(Future.result, started(begun, ahead + threads))
        finally:
            executor.shutdown(cancel_futures=True)


def started(work: Iterable[Work], ahead: int) -> Iterator[Work]:
    """Work that starts when it is asked for: `ahead` others start before one is used."""
    running: deque[Work] = deque()
    for one in work:
        running.append(one)
        if len(running) > ahead:
            yield running.popleft()
    while running:
        yield running.popleft()


def ignore_warnings() -> None:
    """Hides Pillow's warnings about damaged and large files: if they matter, we raise errors.

    Call it before the program reads images, because all threads share the filters.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
