"""Writes files so that a killed run or a full disk leaves them readable; opens untrusted files."""

import contextlib
import errno
import io
import json
import math
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from train.foundation.errors import UserError, let_through

# The largest image file that is read, unless more is allowed. A photograph has a tenth of it.
MOST_IMAGE_BYTES = 256 * 2**20
# The largest text with a line for each class, or for each example.
MOST_CLASSES_BYTES = 256 * 2**20
MOST_EXAMPLES_BYTES = 2**30


class NotRegularError(OSError):
    """A pipe or a device in the place of a file."""


class TooLargeError(OSError):
    """A file with more bytes than are read."""


def open_regular(path: str | Path) -> io.FileIO:
    """Opens a file to be read, and never waits for it.

    Opening a pipe would wait for a writer, and a device may never end.

    Raises:
        NotRegularError: it is a pipe or a device.
        OSError: it is not there, may not be read, or is a folder.
    """
    return _opened(path)[0]


def why_no_file(path: Path) -> str:
    """What a path is instead of a file, in words."""
    if path.is_dir():
        return "is a folder"
    return "is a pipe or a device" if path.exists() else "does not exist"


def read_bounded(path: str | Path, most_bytes: int = MOST_IMAGE_BYTES) -> bytes:
    """The content of a file, unless that has more bytes than are allowed.

    Raises:
        OSError: it cannot be read (see `open_regular`), or is larger.
    """
    with open_bounded(path, most_bytes) as file:
        return file.read()


def open_bounded(path: str | Path, most_bytes: int = MOST_IMAGE_BYTES) -> io.FileIO:
    """Opens a file as `open_regular` does, unless it is larger than allowed.

    Raises:
        TooLargeError: it has more bytes.
        OSError: it cannot be read.
    """
    file, size = _opened(path)
    if size > most_bytes:
        file.close()
        reason = f"it has {size:,} bytes, and more than {most_bytes // 2**20:,} MiB are not read"
        raise TooLargeError(errno.EFBIG, reason, str(path))
    return file


def _opened(path: str | Path) -> tuple[io.FileIO, int]:
    """A regular file, and its size."""
    # Without a buffer, which takes half of the time with images of 1 kB.
    try:
        file = open(path, "rb", buffering=0, opener=_without_waiting)  # noqa: SIM115
    except OSError as error:
        let_through(error)
        raise
    except ValueError as error:
        raise OSError(errno.EINVAL, "its name has a null byte", str(path)) from error
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        file.close()
        raise NotRegularError(errno.EINVAL, "it is a pipe or a device", str(path))
    return file, status.st_size


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def append(path: Path, content: bytes) -> None:
    """Adds to the end of a file; see `open_to_add`."""
    with name_in_errors(path), open_to_add(path) as file:
        file.write(content)


def open_to_add(path: Path) -> io.BufferedRandom:
    """Opens a file to read it and to add to its end; makes it if it is missing.

    Another user may own the folder: this never writes through a link, and never waits.

    Raises:
        UserError: it is a link, a folder, a pipe or a device.
        OSError: it may not be written.
    """
    try:
        return open(path, "a+b", opener=_its_own)
    except OSError as error:
        if path.is_symlink():
            raise UserError(f"{path} must be a file, to be written to; it is a link") from error
        if path.exists() and not path.is_file():
            what = why_no_file(path)
            raise UserError(f"{path} must be a file, to be written to; it {what}") from error
        raise


def _its_own(path: str, flags: int) -> int:
    """Opens a regular file that is not a link."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError(errno.EINVAL, "it is a pipe or a device", path)
    return descriptor


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that at any moment has either its old or its new content."""
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which replaces `path` at the end if there was no error.

    Another user may control the folder. So whatever has the name of the temporary file, even a link
    or a pipe, is removed and not written to. A killed process can have left it as well.

    Raises:
        OSError: the file cannot be written, or another process has started to write it since.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with name_in_errors(path, temporary):
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if not is_at(file, temporary):
                    raise OSError(errno.EBUSY, "another process writes to it", str(path))
                temporary.replace(path)
            finally:
                if is_at(file, temporary):
                    temporary.unlink()


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write to, which becomes `path` at the end if there was no error.

    Raises:
        OSError: it cannot be made, or something else is at `path` by then.
    """
    # Nothing else has this name: another command may make the same folder.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    partial.mkdir()
    try:
        yield partial
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is the file at a path, and the path is not a link."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False


def to_json(value: Any, indent: int | None = None) -> bytes:
    """Strict JSON, on one line unless indented. Numbers that are not finite become null."""
    try:
        text = json.dumps(value, indent=indent, allow_nan=False)
    except (TypeError, ValueError):
        # Done only here: to look at each value takes longer than to encode it, and few objects need
        # it.
        text = json.dumps(_plain(value), indent=indent, allow_nan=False)
    return f"{text}\n".encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    # A scalar or an array, of NumPy or of JAX.
    if hasattr(value, "__array__"):
        return _plain(np.asarray(value).tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextlib.contextmanager
def name_in_errors(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Adds the name of the file to an error: a write to a full disk raises an error without it.

    Args:
        path: the file that the user knows.
        temporary: the name of the file until it is complete.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None and error.filename != str(temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
