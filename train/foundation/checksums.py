"""SHA-256 checksums of the files in a folder, kept in the folder."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from train.foundation import files, json_files, shapes
from train.foundation.side_files import is_of_system

FILE = "checksums.json"
_SHAPE = shapes.table_of(shapes.string)


def write(folder: Path, paths: Iterable[Path]) -> None:
    """Writes the checksums of some files in a folder, through to the disk."""
    known = {str(path.relative_to(folder)): _sha256(path) for path in paths}
    files.write_whole(folder / FILE, files.to_json(dict(sorted(known.items()))))


def check(folder: Path, parts: Iterable[str] = ()) -> None:
    """Raises `OSError` unless all files are there and are what was written.

    Args:
        folder: the folder with the checksums.
        parts: folders in it; each file in them must have a checksum.
    """
    known = _read(folder)
    for name, checksum in known.items():
        try:
            if _sha256(folder / name) != checksum:
                raise OSError(f"{folder / name} changed since it was written")
        except FileNotFoundError as error:
            raise OSError(f"{folder / name} is missing") from error
    for part in parts:
        for path in sorted((folder / part).rglob("*")):
            within = path.relative_to(folder)
            # What a link to a folder leads to is not listed.
            is_listed = path.is_symlink() or not path.is_dir()
            # Systems make files, such as .nfs000001, desktop.ini and those in @eaDir.
            if is_listed and str(within) not in known and not is_of_system(within):
                raise OSError(f"{folder} is damaged: its {FILE} does not list {within}")


def _read(folder: Path) -> dict[str, str]:
    try:
        known: dict[str, str] = json_files.parse(json_files.read_bytes(folder / FILE), _SHAPE)
    except ValueError as error:
        raise OSError(f"{folder / FILE} is damaged: {error}") from error
    for name in known:
        path = Path(name)
        if path.is_absolute() or ".." in path.parts or not path.name or "\0" in name:
            raise OSError(f"{folder / FILE} is damaged: {name!r} is not a file in its folder")
    return known


def _sha256(path: Path) -> str:
    with files.open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
