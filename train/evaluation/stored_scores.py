"""Scores of many examples: in memory, or in a file of which a few rows are read at a time."""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, overload

import numpy as np

# Scores of more bytes, in 32 bits, are in a file.
MOST_IN_MEMORY = 2**28
_DTYPE = np.dtype(np.float32)


@dataclass(frozen=True)
class _OpenFile:
    """A file that is closed when nothing uses it any more; a temporary one is then gone."""

    file: IO[bytes]

    def __del__(self) -> None:
        self.file.close()


@dataclass(frozen=True, eq=False)
class StoredScores:
    """Scores [n, L] in an .npy file, or in a temporary file without a name.

    They are used as an array is, as far as that is possible: a slice gives an array in memory, and
    an array of indices gives stored scores again. Rows are read, not mapped: what is mapped stays
    in memory.

    Attributes:
        opened: the file.
        offset: where the first row of the file begins.
        dtype: of a score.
        num_classes: the number of classes.
        rows: the places of the examples in the file, [n].
    """

    opened: _OpenFile
    offset: int
    dtype: np.dtype
    num_classes: int
    rows: np.ndarray

    @classmethod
    def of_npy(cls, path: Path) -> "StoredScores | None":
        """The scores in an .npy file; None where it has something else, or a row in parts."""
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(mapped, np.memmap) or mapped.ndim != 2 or not mapped.flags.c_contiguous:
            return None
        rows = np.arange(len(mapped))
        return cls(_OpenFile(path.open("rb")), mapped.offset, mapped.dtype, mapped.shape[1], rows)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of examples and classes."""
        return len(self.rows), self.num_classes

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.rows)

    @overload
    def __getitem__(self, chosen: slice) -> np.ndarray: ...

    @overload
    def __getitem__(self, chosen: np.ndarray) -> "StoredScores": ...

    def __getitem__(self, chosen: slice | np.ndarray) -> "np.ndarray | StoredScores":
        """The scores of a slice of the examples, or those at indices, which are not read yet."""
        rows = self.rows[chosen]
        if not isinstance(chosen, slice):
            return replace(self, rows=rows)
        if not rows.size:
            return np.empty((0, self.num_classes), self.dtype)
        # Indices increase as a rule, so that those of a slice are near one another.
        first, last = int(rows.min()), int(rows.max())
        self.opened.file.seek(self.offset + first * self.num_classes * self.dtype.itemsize)
        count = (last + 1 - first) * self.num_classes
        read = np.fromfile(self.opened.file, self.dtype, count).reshape(-1, self.num_classes)
        places = rows - first
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
        self._file: _OpenFile | None = None

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
        if self._num_examples * num_classes * _DTYPE.itemsize > MOST_IN_MEMORY:
            self._file = _OpenFile(tempfile.TemporaryFile())  # noqa: SIM115
        else:
            self._array = np.empty((self._num_examples, num_classes), _DTYPE)

    def scores(self) -> Scores:
        """Those of all examples, when all were added; there is at least one part."""
        if self._file is None:
            assert self._array is not None
            return self._array[: self._num_added]
        self._file.file.flush()
        return StoredScores(self._file, 0, _DTYPE, self._num_classes, np.arange(self._num_added))


def collected(parts: Iterable[np.ndarray], num_examples: int) -> Scores:
    """The scores of at most that many examples, in one or more parts [any, L]."""
    scores = CollectedScores(num_examples)
    for part in parts:
        scores.add(part)
    return scores.scores()
