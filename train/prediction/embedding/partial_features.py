"""The features that were computed so far, in a file beside the final one."""

import contextlib
import errno
import fcntl
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from train.foundation import files
from train.foundation.errors import UserError

# All batches but the last have this size, also after an interruption: the last bits of a feature
# may depend on it, and on the place of its image in the batch.
BATCH_SIZE = 64
_CHECKSUM_BYTES = 4


class PartialFeatures:
    """Batches of features in a file, to resume from.

    Attributes:
        done: the number of images that were processed.

    Args:
        file: the file; a torn end is cut off.
        head: the first line.
        num_examples: the number of images n.
        num_features: the number of features d.
    """

    def __init__(self, file: BinaryIO, head: bytes, num_examples: int, num_features: int) -> None:
        self._file = file
        self._head = head
        self._num_examples = num_examples
        self._num_features = num_features
        self.done = 0
        self._readable: list[np.ndarray] = []
        file.seek(len(head))
        whole = len(head)
        while (found := self._next_batch(self._num_left())) is not None:
            self._note(found[0])
            whole = file.tell()
        file.truncate(whole)

    @property
    def readable(self) -> np.ndarray:
        """Whether each processed image could be read."""
        return np.concatenate([np.zeros(0, bool), *self._readable])

    def add(self, readable: np.ndarray, features: np.ndarray) -> None:
        """Adds the next batch.

        Args:
            readable: whether each image could be read, bool [b].
            features: of all images, also of those that could not be read, float32 [b, d].
        """
        content = readable.tobytes() + features.tobytes()
        with files.naming(Path(self._file.name)):
            self._file.write(content + _checksum(content))
            # So that a killed process does not lose it.
            self._file.flush()
        self._note(readable)

    def batches(self) -> Iterator[np.ndarray]:
        """The features of the images that could be read, batch by batch."""
        self._file.seek(len(self._head))
        for batch in self._readable:
            found = self._next_batch(len(batch))
            if found is None:
                raise OSError(errno.EIO, os.strerror(errno.EIO), self._file.name)
            readable, features = found
            yield features[readable]

    def _note(self, readable: np.ndarray) -> None:
        self._readable.append(readable)
        self.done += len(readable)

    def _num_left(self) -> int:
        return min(BATCH_SIZE, self._num_examples - self.done)

    def _next_batch(self, size: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The batch at this place of the file; None if there is no complete one."""
        content = self._file.read(size * (1 + 4 * self._num_features))
        # After a power cut, a file may have its length and not its content.
        if size == 0 or self._file.read(_CHECKSUM_BYTES) != _checksum(content):
            return None
        readable = np.frombuffer(content, bool, size)
        features = np.frombuffer(content, "<f4", offset=size)
        return readable, features.reshape(size, self._num_features)


def beside(out: Path) -> Path:
    """The file of the features that were computed so far."""
    return out.with_name(f"{out.name}.partial")


@contextlib.contextmanager
def opened(
    out: Path, identity: str, *, num_examples: int, num_features: int
) -> Iterator[PartialFeatures]:
    """The features that an earlier call has computed, to be continued.

    Args:
        out: the final file.
        identity: a text that is another for other images, or for another network.
        num_examples: the number of images n.
        num_features: the number of features d.

    Raises:
        UserError: the file belongs to something else, or another process writes to it.
    """
    path = beside(out)
    head = f"{identity}\n".encode()
    with files.open_to_add(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"another process is computing the features for --out {out}") from error
        file.seek(0)
        found = file.read(len(head))
        if len(found) == len(head) and found != head:
            raise UserError(
                f"{path} has the first features of another network, of other images or with other "
                "flags, for the same --out; give another --out, or delete it"
            )
        if found != head:
            file.truncate(0)
            with files.naming(path):
                file.write(head)
                file.flush()
        partial = PartialFeatures(file, head, num_examples, num_features)
        try:
            yield partial
        finally:
            if partial.done == 0:
                path.unlink(missing_ok=True)


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")
