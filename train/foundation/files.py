"""Writes files so that a killed run or a full disk leaves them readable."""

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
    """Removes the lines of later steps than `first_step`, and incomplete lines."""
    kept = b"".join(raw for line, raw in read_lines(path) if line["step"] <= first_step)
    if kept != path.read_bytes():
        write_whole(path, kept)


def read_lines(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The complete lines of a metrics file, each as an object and as its bytes."""
    with path.open("rb") as file:
        for raw in file:
            try:
                line = json.loads(raw)
            except ValueError:
                continue
            if raw.endswith(b"\n") and isinstance(line, dict) and "step" in line:
                yield line, raw


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that at any moment has either its old or its new content."""
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which replaces `path` at the end if there was no error."""
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
    """Strict JSON, on one line unless indented. Numbers that are not finite become null."""
    return (json.dumps(_plain(value), indent=indent, allow_nan=False) + "\n").encode()


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
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
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
