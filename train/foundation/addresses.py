"""Addresses in the place of paths: the program reads and writes files of a file system, only.

A `Path` would take `gs://bucket/run` for a folder `gs:` here, and write into it.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from train.foundation.errors import UserError

# A scheme of two letters or more, because C:/ is a path, and hf:/PATH has one. There may be several
# paths, with commas between.
_ADDRESS = re.compile(r"(?:^|,)\s*(?!hf:/(?!/))([A-Za-z][A-Za-z0-9+.-]+):/", re.ASCII)
# The schemes of buckets. Users can mount these.
_BUCKETS = frozenset(
    {"gs", "gcs", "s3", "s3a", "s3n", "az", "abfs", "abfss", "wasb", "wasbs", "oss"}
)
_INSTEAD: Mapping[str, Callable[[str], str]] = {
    "file": lambda text: f"give only the path, {text.partition('file:')[2].replace('//', '', 1)}",
    **dict.fromkeys(
        ("http", "https", "ftp"), lambda _: "download what is there, and give its path"
    ),
    **dict.fromkeys(
        _BUCKETS,
        lambda _: (
            "mount the bucket, as with gcsfuse or rclone mount, and give the path in the mount"
        ),
    ),
}


def refuse(field: str, value: Any) -> None:
    """Raises `UserError` for an address in the place of a path.

    Args:
        field: what has the value: a flag as --out, or a field as config.dataset.path.
        value: the value, of which only texts, and texts in lists, are looked at.
    """
    for text in _texts(value):
        match = _ADDRESS.search(text)
        if match is None:
            continue
        scheme = match[1].lower()
        advice = _INSTEAD.get(
            scheme, lambda _: "mount what is there, and give the path in the mount"
        )
        raise UserError(
            field=field,
            must_be="a path in a file system",
            but=f"{text} is an address: {advice(text)}",
        )


def check_arguments(arguments: Sequence[str]) -> None:
    """Raises `UserError` for an address in the value of a flag, or in TFDS_DATA_DIR.

    Args:
        arguments: the command line, before it is parsed: not every parser would report what is
            wrong.
    """
    before = ""
    for argument in arguments:
        name, is_given, value = argument.partition("=")
        if argument.startswith("-"):
            before = f"--{name.lstrip('-')}"
            value = value if is_given else ""
        else:
            value = argument
        if before:
            refuse(before, value)
    refuse("the environment variable TFDS_DATA_DIR", os.environ.get("TFDS_DATA_DIR"))


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple):
        return (one for one in value if isinstance(one, str))
    return ()
