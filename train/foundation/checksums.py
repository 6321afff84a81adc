"""SHA-256 checksums of the files in a folder, kept in the folder."""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from train.foundation import file_locks, files, json_files, shapes
from train.foundation.side_files import is_of_system

FILE = "checksums.json"
_SHAPE = shapes.table_of(shapes.string)


def write(folder: Path, paths: Iterable[Path]) -> None:
    """Writes the checksums of some files in a folder, through to the disk."""
    _write(folder, {str(path.relative_to(folder)): _sha256(path) for path in paths})


def add(folder: Path, name: str, content: bytes) -> None:
    """Writes a file into a folder, with its checksum beside those that are there."""
    with _alone_in(folder):
        known = _read(folder) if (folder / FILE).exists() else {}
        # Before the file, which no other process then finds without a checksum.
        _write(folder, known | {name: hashlib.sha256(content).hexdigest()})
        files.write_whole(folder / name, content)


def check(folder: Path, parts: Iterable[str] = ()) -> None:
    """Raises `OSError` unless all files are there and are what was written.

    Args:
        folder: the folder with the checksums.
        parts: folders in it; each file in them must have a checksum.
    """
    for name, state in changed(folder).items():
        raise OSError(f"{folder / name} {state}")
    known = _read(folder)
    for part in parts:
        for path in sorted((folder / part).rglob("*")):
            within = path.relative_to(folder)
            # What a link to a folder leads to is not listed.
            is_listed = path.is_symlink() or not path.is_dir()
            # Systems make files, such as .nfs000001, desktop.ini and those in @eaDir.
            if is_listed and str(within) not in known and not is_of_system(within):
                raise OSError(f"{folder} is damaged: its {FILE} does not list {within}")


def changed(folder: Path) -> dict[str, str]:
    """The files that are not what was written, and what is wrong with each, in words.

    Raises:
        OSError: there are no checksums, or they are damaged.
    """
    found = {}
    for name, checksum in _read(folder).items():
        try:
            if _sha256(folder / name) != checksum:
                found[name] = "changed since it was written"
        except FileNotFoundError:
            found[name] = "is missing"
    return found


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


def _write(folder: Path, known: dict[str, str]) -> None:
    files.write_whole(folder / FILE, files.to_json(dict(sorted(known.items()))))


def _sha256(path: Path) -> str:
    with files.open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Waits while another process adds a file."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # On shared file systems without locks the checksum of a file may get lost.
        file_locks.wait_for_lock(descriptor)
        yield
    finally:
        os.close(descriptor)
