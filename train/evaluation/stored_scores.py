"""Scores of many examples: in memory, or in a file that is read a few rows at a time."""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from train.foundation import stored_rows
from train.foundation.stored_rows import OpenFile, StoredRows

_DTYPE = np.dtype(np.float32)


@dataclass(frozen=True, eq=False)
class StoredScores:
    """Scores [n, L] in an .npy file, or in a temporary file without a name.

    They can be used like an array: a slice gives an array in memory, and an array of indices gives
    stored scores again.

    Attributes:
        stored: the scores of all examples of the file.
        rows: the places of the examples in the file, [n].
    """

    stored: StoredRows
    rows: np.ndarray

    @classmethod
    def of(cls, stored: StoredRows) -> "StoredScores":
        """The scores in a file."""
        return cls(stored, np.arange(len(stored)))

    @property
    def dtype(self) -> np.dtype:
        """The type of a score."""
        return self.stored.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of examples and classes."""
        return len(self.rows), self.stored.shape[1]

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, chosen: slice) -> np.ndarray: ...

    @overload
    def __getitem__(self, chosen: np.ndarray) -> "StoredScores": ...

    def __getitem__(self, chosen: slice | np.ndarray) -> "np.ndarray | StoredScores":
        """The scores of a slice of the examples, or of the examples at indices, not read yet."""
        rows = self.rows[chosen]
        if not isinstance(chosen, slice):
            return replace(self, rows=rows)
        if not rows.size:
            return self.stored[:0]
        # Indices usually increase, so that the indices of a slice are near one another.
        first, last = int(rows.min()), int(rows.max())
        read, places = self.stored[first : last + 1], rows - first
        return read if np.array_equal(places, np.arange(len(read))) else read[places]


# [n, L]; slices of both are arrays.
Scores = np.ndarray | StoredScores


class CollectedScores:
    """Scores in 32 bits that come in parts [any, L], one after another."""

    def __init__(self, num_examples: int) -> None:
        """Expects at most that many examples."""
        self._num_examples = num_examples
        self._num_added = self._num_classes = 0
        self._array: np.ndarray | None = None
        self._file: OpenFile | None = None

    def add(self, part: np.ndarray) -> None:
        """Adds the scores of the next examples."""
        if self._array is None and self._file is None:
            self._begin(part.shape[1])
        end = self._num_added + len(part)
        if self._array is not None:
            self._array[self._num_added : end] = part
        elif self._file is not None:
            self._file.file.write(np.ascontiguousarray(part, _DTYPE).data)
        self._num_added = end

    def _begin(self, num_classes: int) -> None:
        self._num_classes = num_classes
        if self._num_examples * num_classes * _DTYPE.itemsize > stored_rows.MOST_IN_MEMORY:
            self._file = OpenFile(tempfile.TemporaryFile())  # noqa: SIM115
        else:
            self._array = np.empty((self._num_examples, num_classes), _DTYPE)

    def scores(self) -> Scores:
        """The scores of all examples, after all were added; there is at least one part."""
        if self._file is None:
            assert self._array is not None
            return self._array[: self._num_added]
        self._file.file.flush()
        shape = self._num_added, self._num_classes
        return StoredScores.of(StoredRows(self._file, 0, shape, _DTYPE))


def collect(parts: Iterable[np.ndarray], num_examples: int) -> Scores:
    """The scores of at most that many examples, in one or more parts [any, L]."""
    scores = CollectedScores(num_examples)
    for part in parts:
        scores.add(part)
    return scores.scores()
