"""Reads the JSON files of the program: one door, with a limit, a shape and a message for each.

Whatever a file has, `read` returns a value of the shape, or raises an error of one line. A value
has no number that is not finite unless its shape allows any value there.
"""

import json
import math
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from train.foundation.errors import UserError
from train.foundation.fields import Field

# In bytes. The evaluation of 100,000 classes has some tens of millions.
LARGEST = 2**28
# Of objects and lists in each other. Functions that call themselves for each have room for more.
_DEEPEST = 32


def read(path: Path, shape: Field, what: str) -> Any:
    """The value in a JSON file.

    Args:
        path: the file.
        shape: that of the value.
        what: what the file is, for the message.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read.
        UserError: it is something else; the message has one line.
    """
    try:
        return parse(read_bytes(path), shape)
    except ValueError as error:
        raise UserError(f"{path} is not {what}: {error}") from error


def parse(content: bytes, shape: Field) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is no JSON, is nested too deeply, or has another shape.
    """
    try:
        value = json.loads(
            content.decode(), parse_constant=_refuse, parse_float=_finite, parse_int=_whole
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from error
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    _check_texts(value)
    if (wrong := shape(value)) is not None:
        raise ValueError(f"it must be {wrong}")
    return value


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: it is a pipe or a device, which may never end, or larger than the limit.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no regular file")
    if status.st_size > largest:
        raise ValueError(f"it has {status.st_size:,} bytes, and more than {largest:,} are not read")
    return path.read_bytes()


_TOO_DEEP = f"it has more than {_DEEPEST} lists or objects in each other"


def _check_texts(value: Any) -> None:
    """Refuses what no terminal can print, and what is nested too deeply."""
    level = [value]
    for _ in range(_DEEPEST + 1):
        for text in filter(_is_text, level):
            if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
                raise ValueError("it has half a character, an unpaired surrogate")
        level = [part for item in level for part in _parts(item)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


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
    """A whole number that a float can hold, if not to the last digit: it may become one."""
    _finite(text)
    return int(text)
