"""Texts of other programs: in UTF-8, or in the encoding of the byte order mark at their start."""

import codecs
import io
from pathlib import Path
from typing import TextIO

from train.foundation import files

# UTF-32 first: its mark in little-endian order starts with the mark of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LONGEST = max(len(mark) for mark, _ in _MARKS)


def decoded(content: bytes) -> str:
    """The text of a file, without its mark of byte order.

    Raises:
        UnicodeDecodeError: it is not in the encoding of its mark; without one, in UTF-8.
    """
    return content.decode(_encoding(content))


def opened(path: Path, most_bytes: int) -> TextIO:
    """Opens a text; line ends are left as they are. Reading may raise `UnicodeDecodeError`.

    Raises:
        OSError: it cannot be read, or is larger; see `files.open_bounded`.
    """
    file = io.BufferedReader(files.open_bounded(path, most_bytes))
    encoding = _encoding(file.peek(_LONGEST))
    return io.TextIOWrapper(file, encoding=encoding, newline="")


def _encoding(start: bytes) -> str:
    return next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8")
