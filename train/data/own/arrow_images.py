"""Encoded images in a column of Arrow files, which are mapped into memory and read at random."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow
import pyarrow.compute
from typing_extensions import override

from train.data.own import encoded_images
from train.data.own.encoded_images import EncodedImages
from train.foundation.files import open_bounded, read_bounded
from train.foundation.names import SimilarFiles, shown


def read_column(files: Sequence[str], name: str) -> pyarrow.ChunkedArray:
    """A column of tables in Arrow files, one after another; nothing is read before it is used."""
    tables = [pyarrow.ipc.open_stream(pyarrow.memory_map(file)).read_all() for file in files]
    return pyarrow.concat_tables([table.select([name]) for table in tables]).column(name)


class ArrowImages(EncodedImages):
    """Images in a column of Arrow files, or in image files that it names.

    A value of the column is the bytes of an image file, its path, or both by these names. The files
    are sent to the processes that decode by their names.
    """

    def __init__(
        self,
        files: Sequence[str],
        name: str,
        root: Path,
    ) -> None:
        """Maps the files.

        Args:
            files: the Arrow files.
            name: the name of the column.
            root: what the paths of image files are relative to.
        """
        self._arguments = (files, name, root)
        self._root = root
        self._similar = SimilarFiles(root)
        column = read_column(files, name)
        self._length = len(column)
        self._bytes, self._paths = _bytes_and_paths(column)

    def __reduce__(self) -> tuple[Callable[..., "ArrowImages"], tuple[Any, ...]]:
        """What makes the same of the names of the files in another process."""
        return ArrowImages, self._arguments

    def __len__(self) -> int:
        """The number of images."""
        return self._length

    @override
    def read(self, index: int) -> bytes:
        """The bytes of an image; empty if it does not have any.

        Raises:
            OSError: its file cannot be read.
        """
        found = None if self._bytes is None else self._bytes[index].as_py()
        path = None if self._paths is None else self._paths[index].as_py()
        if found is None and path is not None:
            try:
                return read_bounded(self._file(path))
            except OSError as error:
                named = shown(str(self._root / path))
                raise OSError(error.errno, f"{named}: {error.strerror}") from error
        return found or b""

    @override
    def open(self, index: int) -> BinaryIO:
        if self._bytes is not None and (found := self._bytes[index]).is_valid:
            file: BinaryIO = pyarrow.BufferReader(found.as_buffer())
            return file
        path = None if self._paths is None else self._paths[index].as_py()
        if path is None:
            return io.BytesIO()
        return io.BufferedReader(open_bounded(self._file(path)))

    @override
    def mark(self, index: int) -> bytes:
        """The end of an image; nothing if its file cannot be read."""
        if self._bytes is not None and (found := self._bytes[index]).is_valid:
            # A view: only what is asked for is read of the mapped file.
            return memoryview(found.as_buffer())[-encoded_images.MARK_BYTES :].tobytes()
        path = None if self._paths is None else self._paths[index].as_py()
        return b"" if path is None else encoded_images.end_of(self._file(path))

    def sizes(self) -> np.ndarray:
        """The number of bytes of each image, int64 [n]; 0 for one that is missing.

        For an image in a file, see `encoded_images.file_sizes`.
        """
        found = np.zeros(len(self), np.int64)
        inside = np.zeros(len(self), bool)
        if self._bytes is not None:
            # Views have no lengths.
            parts = [chunk.cast(pyarrow.large_binary()) for chunk in self._bytes.chunks]
            lengths = pyarrow.chunked_array(
                [pyarrow.compute.binary_length(part) for part in parts], pyarrow.int64()
            )
            inside = lengths.is_valid().to_numpy()
            found = lengths.fill_null(0).to_numpy().copy()
        if self._paths is not None:
            # A value without a path has no image.
            paths = {
                index: path
                for index in np.flatnonzero(~inside).tolist()
                if (path := self._paths[index].as_py()) is not None
            }
            named = [str(self._file(path)) for path in paths.values()]
            found[list(paths)] = encoded_images.file_sizes(self._root, named)
        return found

    def _file(self, path: str) -> Path:
        """The file that a path names, or one whose name looks the same."""
        return self._root / (self._similar.find(path) or path)


def _bytes_and_paths(
    column: pyarrow.ChunkedArray,
) -> tuple[pyarrow.ChunkedArray | None, pyarrow.ChunkedArray | None]:
    if holds_bytes(column.type):
        return column, None
    if holds_text(column.type):
        return None, column
    names = [field.name for field in column.type]
    values = [
        pyarrow.compute.struct_field(column, [name]) if name in names else None
        for name in ("bytes", "path")
    ]
    return values[0], values[1]


def holds_images(kind: pyarrow.DataType) -> bool:
    """Whether the values of a column are images or their paths, as `ArrowImages` takes them."""
    if not pyarrow.types.is_struct(kind):
        return holds_bytes(kind) or holds_text(kind)
    fits = {"bytes": holds_bytes, "path": holds_text}
    # If all images are in files, the bytes have no type; if none is, the paths have no type.
    parts = [
        fits[field.name](field.type)
        for field in kind
        if field.name in fits and not pyarrow.types.is_null(field.type)
    ]
    return bool(parts) and all(parts)


def holds_bytes(kind: pyarrow.DataType) -> bool:
    """Whether the values of a column are bytes."""
    types = pyarrow.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def holds_text(kind: pyarrow.DataType) -> bool:
    """Whether the values of a column are texts."""
    types = pyarrow.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))
