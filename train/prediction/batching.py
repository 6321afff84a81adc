"""The size of batches, and their computation one batch ahead of the batch that is used."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

Examples = TypeVar("Examples")
Outputs = TypeVar("Outputs")


def batch_size(number: int, largest: int) -> int:
    """The size of the batches of some examples: the smallest power of two that holds all.

    Args:
        number: of examples; at least 1.
        largest: what it is at most.
    """
    return min(largest, 1 << (number - 1).bit_length())


def divided(orders: Sequence[np.ndarray], size: int) -> list[np.ndarray]:
    """Batches of examples at some indices; each of the arrays starts a new batch."""
    return [order[start : start + size] for order in orders for start in range(0, len(order), size)]


def one_ahead(
    infer: Callable[[np.ndarray], Outputs], batches: Iterable[tuple[Examples, np.ndarray]]
) -> Iterator[tuple[Examples, Outputs]]:
    """The outputs for each batch: while the device computes one, the previous is yielded.

    Args:
        infer: starts the computation of a batch, and does not wait for its end.
        batches: each as its examples and the input of `infer`.
    """
    running: deque[tuple[Examples, Outputs]] = deque()
    for examples, batch in batches:
        running.append((examples, infer(batch)))
        if len(running) > 1:
            yield running.popleft()
    yield from running
