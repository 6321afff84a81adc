"""Scores of many examples: in memory, or in a temporary file that is mapped into it."""

import tempfile
from collections.abc import Iterable
from typing import IO

import numpy as np

# Scores of more bytes are in a temporary file.
MOST_IN_MEMORY = 2**28


class CollectedScores:
    """Scores in 32 bits that come in parts [any, L], one after another."""

    def __init__(self, num_examples: int) -> None:
        """Expects at most that many examples."""
        self._num_examples = num_examples
        self._num_added = self._num_classes = 0
        self._array: np.ndarray | None = None
        self._file: IO[bytes] | None = None

    def add(self, part: np.ndarray) -> None:
        """Adds the scores of the next examples."""
        if self._array is None and self._file is None:
            self._num_classes = part.shape[1]
            if 4 * self._num_examples * self._num_classes > MOST_IN_MEMORY:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115
            else:
                self._array = np.empty((self._num_examples, self._num_classes), np.float32)
        end = self._num_added + len(part)
        if self._array is not None:
            self._array[self._num_added : end] = part
        elif self._file is not None:
            # Written, because a full disk ends a process that writes to a map.
            self._file.write(np.ascontiguousarray(part, np.float32).data)
        self._num_added = end

    def scores(self) -> np.ndarray:
        """The scores of all examples, after all were added; there is at least one."""
        if self._file is None:
            assert self._array is not None
            return self._array[: self._num_added]
        shape = self._num_added, self._num_classes
        with self._file as file:  # The map keeps it.
            file.flush()
            return np.memmap(file, np.float32, "r", shape=shape)


def collect(parts: Iterable[np.ndarray], num_examples: int) -> np.ndarray:
    """The scores of at most that many examples, in one or more parts [any, L]."""
    scores = CollectedScores(num_examples)
    for part in parts:
        scores.add(part)
    return scores.scores()
