"""SHA-256 checksums of the files in a folder, kept in the folder."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from train.foundation import json_files, shapes

_FILE = "checksums.json"
_SHAPE = shapes.table_of(shapes.string)


def write(folder: Path, parts: Sequence[str]) -> None:
    """Writes the checksums of the files below some folders in `folder`, through to the disk."""
    checksums = {
        str(file.relative_to(folder)): _sha256(file)
        for part in parts
        for file in sorted((folder / part).rglob("*"))
        if file.is_file()
    }
    with (folder / _FILE).open("w") as stream:
        json.dump(checksums, stream, sort_keys=True)
        stream.flush()
        os.fsync(stream.fileno())


def check(folder: Path) -> None:
    """Raises `OSError` or `ValueError` unless all files are there and are what was written."""
    checksums = json_files.parse(json_files.read_bytes(folder / _FILE), _SHAPE)
    for name, checksum in checksums.items():
        if _sha256(folder / name) != checksum:
            raise OSError(f"{folder / name} is not what was written")


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
