"""The file of a part: a line that describes it, and the results of its units, one by one.

A result is added as soon as it is there, so that a process that was killed continues after it when
it is started again.
"""

import contextlib
import errno
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from train.foundation import fields, file_locks, files, json_files, shapes
from train.foundation.errors import UserError
from train.sharing.shard import Shard

# The version of the format.
_FORMAT = 1
_LENGTH_BYTES, _CHECKSUM_BYTES = 8, 4
_MOST_HEAD_BYTES = 2**20
_SHAPE = shapes.record(
    {
        "format": fields.integer(_FORMAT, _FORMAT),
        "work": fields.text(),
        "index": fields.integer(0),
        "number": fields.integer(1),
        "units": fields.integer(0),
        "kind": shapes.record({}),
    }
)


@dataclass(frozen=True)
class Head:
    """What a part is.

    Attributes:
        work: the name of the work.
        index: which part it is, from 0.
        number: how many parts there are.
        units: the number of units of all parts.
        kind: texts that all parts of one work have in common; see `kinds`.
    """

    work: str
    index: int
    number: int
    units: int
    kind: Mapping[str, str]

    @property
    def shard(self) -> Shard:
        """Its share."""
        return Shard(self.index, self.number)

    @property
    def share(self) -> range:
        """Its units."""
        return self.shard.share(self.units)

    def to_line(self) -> bytes:
        """The first line of the file."""
        return files.to_json({"format": _FORMAT, **asdict(self)})


class PartFile:
    """The results of consecutive units in an open file, to which more are added.

    Attributes:
        done: the number of results that are there.

    Args:
        file: the file, with its first line; a torn end is cut off.
        head: what it is.
    """

    def __init__(self, file: BinaryIO, head: Head) -> None:
        self._file = file
        self._start = len(head.to_line())
        self._path = Path(file.name)
        self.done = 0
        file.seek(self._start)
        end = self._start
        while self.done < len(head.share) and _next(file) is not None:
            self.done += 1
            end = file.tell()
        file.truncate(end)

    def add(self, result: bytes) -> None:
        """Adds the result of the next unit."""
        with files.name_in_errors(self._path):
            self._file.seek(0, os.SEEK_END)
            for part in _framed(result):
                self._file.write(part)
            # So that a killed process does not lose it.
            self._file.flush()
        self.done += 1

    def results(self) -> Iterator[bytes]:
        """The results that are there."""
        self._file.seek(self._start)
        for _ in range(self.done):
            result = _next(self._file)
            if result is None:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(self._path))
            yield result

    def finish(self) -> None:
        """Makes all of it durable."""
        with files.name_in_errors(self._path):
            os.fsync(self._file.fileno())


@contextlib.contextmanager
def opened(path: Path, head: Head) -> Iterator[PartFile]:
    """The file of a part, opened to continue after what an earlier start has computed.

    A file without any result is removed at the end, unless the part has no units.

    Args:
        path: the file.
        head: what it is.

    Raises:
        UserError: the file is something else, or another process writes to it.
    """
    line = head.to_line()
    with file_locks.open_locked(path, f"another process is using {path}") as file:
        file.seek(0)
        found = file.read(len(line))
        # What a killed process has begun to write.
        if not line.startswith(found):
            raise UserError(_why_other(path, head))
        if found != line:
            file.truncate(0)
            with files.name_in_errors(path):
                file.write(line)
                file.flush()
        part = PartFile(file, head)
        try:
            yield part
        finally:
            if part.done == 0 and head.share:
                path.unlink(missing_ok=True)


def _why_other(path: Path, head: Head) -> str:
    other = read_head(path)
    what = "something else" if other is None else f"results of {differing(other, head)}"
    return f"{path} has {what}, for the same --out; give another --out, or delete it"


def read_head(path: Path) -> Head | None:
    """What a file is; None if it is not a part."""
    try:
        with files.open_regular(path) as file:
            line = file.read(_MOST_HEAD_BYTES).partition(b"\n")
        if not line[1]:
            return None
        found: dict[str, Any] = json_files.parse(line[0], _SHAPE)
    except (OSError, ValueError):
        return None
    del found["format"]
    head = Head(**found)
    return head if head.index < head.number else None


def count(path: Path, head: Head) -> int:
    """The number of results in a file."""
    with _after_head(path, head) as file:
        return _count(file, len(head.share))


def _count(file: BinaryIO, most: int) -> int:
    done = 0
    while done < most and _next(file) is not None:
        done += 1
    return done


def read_results(path: Path, head: Head) -> Iterator[bytes]:
    """The results in the file of a complete part.

    Raises:
        OSError: they are not all there any more.
    """
    with _after_head(path, head) as file:
        for _ in head.share:
            result = _next(file)
            if result is None:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            yield result


def differing(other: Head, head: Head) -> str:
    """In words, how another part differs from this one; empty if nothing differs.

    Args:
        other: the other part.
        head: this one.
    """
    if other.work != head.work:
        return "other work"
    for name, value in head.kind.items():
        if other.kind.get(name) != value:
            return f"{_IN_WORDS.get(name, f'another {name}')}{_details(name, other, head)}"
    if other.number != head.number:
        return f"{other.number} shares, not {head.number}"
    if other.index != head.index:
        return f"the share {other.shard}"
    return "" if other == head else "other inputs"


_IN_WORDS = {
    "command": "another command",
    "features": "another network, of other images or with other flags",
    "network": "another run, network or program",
    "flags": "other flags",
    "program": "another version of the program, or on another kind of device",
    "inputs": "other inputs: files were added, removed or changed since",
}


def _details(name: str, other: Head, head: Head) -> str:
    """The flags that differ, or the versions."""
    if name == "program":
        return f" ({other.kind.get(name)}; here {head.kind.get(name)})"
    if name != "flags":
        return ""
    try:
        before, now = (json.loads(one.kind[name]) for one in (other, head))
        names = sorted(
            flag for flag in before.keys() | now.keys() if before.get(flag) != now.get(flag)
        )
    except (AttributeError, KeyError, ValueError):
        return ""
    return f" ({', '.join(f'--{flag}' for flag in names)})"


@contextlib.contextmanager
def _after_head(path: Path, head: Head) -> Iterator[BinaryIO]:
    with files.open_regular(path) as raw, open(raw.fileno(), "rb", closefd=False) as file:
        file.seek(len(head.to_line()))
        yield file


def _framed(result: bytes) -> tuple[bytes, bytes, bytes]:
    length = len(result).to_bytes(_LENGTH_BYTES, "little")
    checksum = zlib.crc32(result, zlib.crc32(length))
    return length, result, checksum.to_bytes(_CHECKSUM_BYTES, "little")


def _next(file: BinaryIO) -> bytes | None:
    """The result at this place of a file; None if there is no complete one."""
    length = file.read(_LENGTH_BYTES)
    if len(length) < _LENGTH_BYTES:
        return None
    number = int.from_bytes(length, "little")
    # After a power cut, a file may have its length and not its content.
    if number > os.fstat(file.fileno()).st_size - file.tell():
        return None
    result = file.read(number)
    checksum = zlib.crc32(result, zlib.crc32(length)).to_bytes(_CHECKSUM_BYTES, "little")
    return result if file.read(_CHECKSUM_BYTES) == checksum else None
