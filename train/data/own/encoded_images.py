"""Encoded images: as the examples of `Records`, and looked at in part."""

import contextlib
import io
import os
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from typing_extensions import override

from train.foundation import files
from train.foundation.files import open_bounded, read_bounded

# The length of the end of a file that is compared. Two photographs already differ in a shorter end,
# because compressed pixels come last.
MARK_BYTES = 256
# The size of a file that cannot be looked at.
NO_SIZE = -1


class EncodedImages(Sequence[dict[str, Any]]):
    """Images, undecoded, as the examples of `Records`, that can be looked at in part."""

    def __getitem__(self, index: Any) -> Any:
        """The bytes of an image and its name; if it cannot be read, no bytes and the reason."""
        name = self.name(index)
        try:
            return {"image": self.read(index), "file_name": name}
        except OSError as error:
            return {"image": b"", "file_name": name, "unreadable": error.strerror}

    def name(self, index: int) -> str:
        """The name of an image in messages."""
        return f"record {index}"

    @abstractmethod
    def read(self, index: int) -> bytes:
        """The bytes of an image.

        Raises:
            OSError: its file cannot be read.
        """

    def open(self, index: int) -> BinaryIO:
        """An image as a file, which reads only what is asked for if it can; errors as `read`."""
        return io.BytesIO(self.read(index))

    def mark(self, index: int) -> Hashable:
        """What is the same for the same content, and can be had without all of it."""
        del index
        return None


class NamedImages(EncodedImages):
    """Images that are called by their paths.

    Args:
        paths: their paths.
    """

    def __init__(self, paths: tuple[str, ...]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        """The number of images."""
        return len(self._paths)

    @override
    def name(self, index: int) -> str:
        return self._paths[index]


class Files(NamedImages):
    """Image files as the examples of `Records`.

    Args:
        root: the folder that their paths begin in.
        paths: their paths; a table may have absolute ones.
    """

    def __init__(self, root: Path, paths: tuple[str, ...]) -> None:
        super().__init__(paths)
        self._root = str(root)

    @override
    def read(self, index: int) -> bytes:
        return read_bounded(self._path(index))

    @override
    def open(self, index: int) -> BinaryIO:
        return io.BufferedReader(open_bounded(self._path(index)))

    @override
    def mark(self, index: int) -> bytes:
        """The end of a file; nothing if it cannot be read."""
        return end_of(self._path(index))

    def files(self) -> Iterator[Path]:
        """The path of each file."""
        return (Path(self._path(index)) for index in range(len(self)))

    def _path(self, index: int) -> str:
        # `Path.joinpath` takes as long as reading does, with images of 1 kB.
        return os.path.join(self._root, self._paths[index])  # noqa: PTH118


def file_sizes(root: Path, paths: Sequence[str]) -> np.ndarray:
    """The bytes of each file below a folder, int64 [n].

    A file that is gone, or a link to nothing, has `NO_SIZE`: whoever reads it finds out why.
    """
    found = np.full(len(paths), NO_SIZE, np.int64)
    for index, path in enumerate(paths):
        # A name can have a null byte.
        with contextlib.suppress(OSError, ValueError):
            found[index] = (root / path).stat().st_size
    return found


def end_of(path: str | Path) -> bytes:
    """The end of a file as a mark of its content; nothing if it cannot be read."""
    try:
        return files.read_end(path, MARK_BYTES)
    except OSError:
        return b""
