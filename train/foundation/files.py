"""Files that a killed run or a full disk leaves readable; used by all that write but orbax."""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np


def append(path: Path, content: bytes) -> None:
    """Adds to the end of a file."""
    with naming(path), path.open("ab") as file:
        file.write(content)


def drop_lines_after(path: Path, first_step: int) -> None:
    """Leaves the whole lines of the steps up to `first_step`."""
    kept = b"".join(raw for line, raw in read_lines(path) if line["step"] <= first_step)
    if kept != path.read_bytes():
        write_whole(path, kept)


def read_lines(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The whole lines of a file of metrics, as objects and as they are."""
    with path.open("rb") as file:
        for raw in file:
            try:
                line = json.loads(raw)
            except ValueError:
                continue
            if raw.endswith(b"\n") and isinstance(line, dict) and "step" in line:
                yield line, raw


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file of which at any moment there is all, of the old or the new, or nothing."""
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` at the end, if there is no error."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with naming(path, temporary):
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def to_json(value: Any, indent: int | None = None) -> bytes:
    """One line, or several if indented, of strict JSON; what is not finite becomes null."""
    return (json.dumps(_plain(value), indent=indent, allow_nan=False) + "\n").encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    # Of NumPy or of JAX.
    if hasattr(value, "__array__"):
        return _plain(np.asarray(value).tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextlib.contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Has an error name the file: a write that fails, on a full disk, does not.

    Args:
        path: the file as the user knows it.
        temporary: another name that it has until it is whole.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None and error.filename != str(temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
