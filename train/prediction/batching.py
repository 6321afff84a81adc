"""Batches of anything, and their computation one batch ahead of the batch that is used."""

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of some items one after the other; only the last may be shorter."""
    iterator = iter(items)
    while batch := [*itertools.islice(iterator, size)]:
        yield batch


def one_ahead(started: Iterable[Item]) -> Iterator[Item]:
    """Computations that start when they are asked for: the next starts before one is used.

    So the device computes while results are written.
    """
    running: deque[Item] = deque()
    for item in started:
        running.append(item)
        if len(running) > 1:
            yield running.popleft()
    yield from running
