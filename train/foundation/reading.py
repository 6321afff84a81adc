"""Reads many images in several threads, in their order and a little ahead."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Source = TypeVar("Source")
Image = TypeVar("Image")

_MOST_THREADS = 16


def in_threads(
    read: Callable[[Source], Image], sources: Iterable[Source], *, ahead: int
) -> Iterator[Image]:
    """What is read of each source, in their order: Pillow decodes without Python's lock.

    Args:
        read: reads one.
        sources: what to read.
        ahead: how many are read before they are wanted, beside one in each thread.
    """
    threads = min(os.cpu_count() or 1, _MOST_THREADS)
    with ThreadPoolExecutor(threads, thread_name_prefix="images") as executor:
        begun: deque[Future[Image]] = deque()
        try:
            for source in sources:
                begun.append(executor.submit(read, source))
                if len(begun) > ahead + threads:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            executor.shutdown(cancel_futures=True)
