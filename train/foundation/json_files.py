"""Reads the JSON files of the program: one door, with a limit, a shape and a message for each.

Whatever a file has, `read` returns a value of the shape, or raises an error of one line. A value
has no number that is not finite unless its shape allows any value there.

An object can be sealed: it then has the SHA-256 of its other entries, so that a digit that changed
on the disk is found. The checksum is in the file itself, and not in another one beside it: a kill
between two writes, a second writer, or a copy of one file cannot make them differ. It is of the
values, and not of the bytes: the text may be reformatted. Files of earlier versions do not have a
checksum.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from train.foundation import files, text_files
from train.foundation.errors import UserError
from train.foundation.fields import Field

# The largest file, in bytes. The evaluation of 100,000 classes has some tens of millions.
LARGEST = 2**28
# The entry of a sealed object with the checksum of the others.
SEAL = "sha256"
# The deepest nesting of objects and lists. Recursive functions have room for more.
_DEEPEST = 32
# The most bits of an integer: as many as a float can have.
_MOST_BITS = 1024


class ChangedError(UserError):
    """A sealed file whose content changed since it was written."""


def sealed(value: Mapping[str, Any], indent: int | None = None) -> bytes:
    """The content of a file for an object, with its checksum; see `files.to_json`."""
    # The value in the form in which it is read back.
    plain: dict[str, Any] = json.loads(files.to_json(value))
    return files.to_json({**plain, SEAL: checksum(plain)}, indent=indent)


def checksum(value: Any) -> str:
    """The SHA-256 of a JSON value, however its text is laid out."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read(path: Path, shape: Field, what: str) -> Any:
    """The value in a JSON file, without its checksum if it is sealed.

    Args:
        path: the file.
        shape: the shape of the value.
        what: what the file is, for the message.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read.
        ChangedError: it is sealed, and changed since it was written.
        UserError: it is something else; the message has one line.
    """
    try:
        value = _value(read_bytes(path))
    except ValueError as error:
        raise UserError(f"{path} is not {what}: {error}") from error
    seal = value.pop(SEAL, None) if isinstance(value, dict) else None
    if seal not in (None, checksum(value)):
        raise ChangedError(
            f"{path} is not {what} as it was written: it was changed or damaged since; if you "
            f"changed it on purpose, remove its line {SEAL}"
        )
    if (wrong := shape(value)) is not None:
        raise UserError(f"{path} is not {what}: {_must_be(wrong)}")
    return value


def parse(content: bytes, shape: Field) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or has another shape.
    """
    value = _value(content)
    if (wrong := shape(value)) is not None:
        raise ValueError(_must_be(wrong))
    return value


def _value(content: bytes) -> Any:
    """Any JSON value that is not nested too deeply."""
    try:
        value = json.loads(
            text_files.decoded(content),
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_whole,
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not {error.encoding.upper()}") from error
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    check_parts(value)
    return value


def _must_be(wrong: str) -> str:
    return f"it must be {wrong}"


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: it is a pipe or a device, which may never end, or larger than the limit.
    """
    try:
        with files.open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > largest:
                raise ValueError(f"it has {size:,} bytes, and more than {largest:,} are not read")
            return file.readall()
    except (files.NotRegularError, IsADirectoryError) as error:
        raise ValueError("it is not a regular file") from error


_TOO_DEEP = f"its lists and objects are nested more than {_DEEPEST} deep"


def check_parts(value: Any) -> None:
    """Refuses what cannot be printed in a message, and what is nested too deeply.

    Raises:
        ValueError: a text has half a character, an integer has more digits than Python prints,
            or lists and objects are nested too deeply.
    """
    level = [value]
    for _ in range(_DEEPEST + 1):
        for number in filter(_is_whole, level):
            if number.bit_length() > _MOST_BITS:
                raise ValueError(f"it has an integer of {number.bit_length():,} bits")
        for text in filter(_is_text, level):
            if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
                raise ValueError("it has half a character, an unpaired surrogate")
        level = [part for item in level for part in _parts(item)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"it has {constant}, which is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"it has {text[:20]}, which is too large")
    return number


def _whole(text: str) -> int:
    """An integer in the range of floats. It may become a float, without its last digits."""
    _finite(text)
    return int(text)
