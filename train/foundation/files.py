"""Reads and writes files: a killed command or a full disk leaves them with old or new content."""

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import filelock
import msgspec
import numpy as np

from train.foundation.errors import UserError, errors_told

# The largest image file that is read. A photograph has a tenth of it.
MOST_IMAGE_BYTES = 256 * 2**20
# The file that a command locks while it writes to a folder.
LOCK = "lock"
# The checksums of the files in a folder.
CHECKSUMS = "checksums.json"
# The entry of an object with the checksum of the others.
_CHECKSUM = "sha256"

T = TypeVar("T")


def read(path: Path, type_: type[T], what: str) -> T:
    """The value in a JSON file.

    Args:
        path: the file.
        type_: the type of the value: a struct of msgspec, or any type that it decodes.
        what: what the file is, for the message.

    Raises:
        UserError: it has something else, or is damaged.
        OSError: there is no such file, or it cannot be read.
    """
    content = path.read_bytes()
    with errors_told(f"{path} is not {what}, or is damaged"):
        return msgspec.json.decode(content, type=type_)


def read_bounded(path: str | Path, most_bytes: int = MOST_IMAGE_BYTES) -> bytes:
    """The content of a file; raises `OSError` if it has more bytes, or cannot be read."""
    # Without a buffer, which takes half of the time with images of 1 kB.
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (as long as the rest)
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            reason = f"it has {size:,} bytes; more than {most_bytes // 2**20:,} MiB are not read"
            raise OSError(errno.EFBIG, reason, str(path))
        return file.read()


def read_text(path: Path) -> str:
    """A text in UTF-8, or in UTF-16 with a mark of byte order, as spreadsheets write it.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is in another encoding.
    """
    content = path.read_bytes()
    is_utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    return content.decode("utf-16" if is_utf16 else "utf-8-sig")


def to_json(value: Any, indent: int | None = None) -> bytes:
    """JSON on one line unless indented; numbers that are not finite become null."""
    try:
        text = json.dumps(value, indent=indent, allow_nan=False)
    except (TypeError, ValueError):
        plain = json.loads(msgspec.json.encode(value, enc_hook=_plain))
        text = json.dumps(plain, indent=indent)
    return f"{text}\n".encode()


def _plain(value: Any) -> Any:
    """A mapping as a dictionary; a scalar or an array of NumPy or JAX as numbers."""
    return dict(value) if isinstance(value, Mapping) else np.asarray(value).tolist()


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that at any moment has either its old or its new content."""
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which replaces `path` at the end if there was no error."""
    temporary = path.with_name(f".{path.name}.tmp")
    with name_in_errors(path, temporary):
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write to, which becomes `path` at the end if there was no error."""
    # Nothing else has this name: another command may make the same folder.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    partial.mkdir()
    try:
        yield partial
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextlib.contextmanager
def name_in_errors(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Adds the name of the file to an error: a write to a full disk raises an error without it.

    Args:
        path: the file that the user knows.
        temporary: the file in its place until it is complete.
    """
    try:
        yield
    except OSError as error:
        if error.filename not in (None, str(temporary)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def lock(folder: Path, who: str, name: str = LOCK) -> Iterator[None]:
    """Holds the lock of a folder, which is made. A process that is killed loses it.

    Args:
        folder: the folder.
        who: what holds the lock, for the message of the second command: "another run".
        name: the name of the file that is locked; with another one, for a part of the folder.

    Raises:
        UserError: another command holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        held = filelock.FileLock(folder / name).acquire(timeout=0)
    except filelock.Timeout as error:
        message = f"{who} is using {folder}; wait until it ends, or stop it"
        raise UserError(message) from error
    with held:
        try:
            yield
        finally:
            # The next holder looks whether the file that it locked is still there.
            (folder / name).unlink(missing_ok=True)


def with_checksum(value: Mapping[str, Any]) -> dict[str, Any]:
    """An object of JSON with the checksum of its entries: another digit would give other sets."""
    plain: dict[str, Any] = json.loads(to_json(value))
    return plain | {_CHECKSUM: _checksum(plain)}


def read_checked(path: Path, what: str) -> dict[str, Any]:
    """The object in a JSON file with its checksum; see `read`."""
    value = read(path, dict[str, Any], what)
    if value.pop(_CHECKSUM, None) != _checksum(value):
        raise UserError(
            f"{path} is not {what} as it was written: it was changed or damaged; write it again"
        )
    return value


def _checksum(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_checksums(folder: Path, paths: Iterable[Path]) -> None:
    """Writes the SHA-256 checksums of files in a folder to a file in it."""
    known = {path.relative_to(folder).as_posix(): sha256(path) for path in sorted(paths)}
    write_whole(folder / CHECKSUMS, to_json(known))


def check_checksums(folder: Path) -> None:
    """Compares the files of a folder with its checksums.

    Raises:
        OSError: a file changed since it was written, is missing, or cannot be read.
        UserError: the list of checksums is damaged.
    """
    for name, known in read(folder / CHECKSUMS, dict[str, str], "a list of checksums").items():
        if sha256(folder / name) != known:
            raise OSError(f"{folder / name} changed since it was written")


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
