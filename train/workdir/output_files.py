"""Checks the files that the command line names for writing."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from train.foundation import fields
from train.foundation.errors import UserError
from train.workdir import run_files

# The formats of figures; others would be untested.
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
# Links in them, such as /dev/stdout, belong to the machine, and would be replaced by files.
_SYSTEM = (Path("/dev"), Path("/proc"), Path("/sys"))
# It is in /dev, but has files of all users, in memory.
_SHARED_MEMORY = Path("/dev/shm")
# A folder with this file is a prepared data set.
_DESCRIPTION = "dataset_info.json"


def checked(
    flag: str,
    value: str | Path,
    kept: Mapping[Path, str] = MappingProxyType({}),
    *,
    suffixes: Collection[str] = (),
) -> Path:
    """The file that a flag names, if it can be written.

    Args:
        flag: the name of the flag.
        value: the value of the flag.
        kept: files that must not be overwritten, and folders in which nothing may be written, and
            what messages call each.
        suffixes: what its name may end with; empty for anything.

    Raises:
        UserError: its folder does not exist or may not be written to, its path is not the path of
            a file, its name ends with something else, it is one of the files that must not be
            overwritten, or it belongs to a run.
    """
    path = Path(value)
    if not path.name or path.is_dir():
        raise UserError(f"--{flag} must be a file; got {value or 'an empty text'}")
    # Replacing a device or a pipe would remove it.
    if path.exists() and not path.is_file():
        raise UserError(field=f"--{flag}", must_be="a file", but=f"{path} is a device or a pipe")
    _refuse_place(flag, path, kept)
    if suffixes and (wrong := fields.one_of(suffixes)(path.suffix)):
        raise UserError(field=f"--{flag}", must_be=f"a file whose suffix is {wrong}", got=path)
    return path


def new_folder(flag: str, value: str, kept: Mapping[Path, str], must_be: str) -> Path:
    """The folder that a flag names, if it can be made.

    Args:
        flag: the name of the flag.
        value: the value of the flag.
        kept: as for `checked`.
        must_be: what the folder must be, for the message if there is something at its path.

    Raises:
        UserError: there is something, or a file could not be written there; see `checked`.
    """
    path = Path(value)
    if not path.name or os.path.lexists(path):
        raise UserError(f"--{flag} must be {must_be}; got {value or 'an empty text'}")
    _refuse_place(flag, path, kept)
    return path


def _refuse_place(flag: str, path: Path, kept: Mapping[Path, str]) -> None:
    if not path.parent.is_dir():
        raise UserError(f"--{flag} must be in an existing folder; there is no {path.parent}")
    refuse_folders_of_the_system(flag, path)
    refuse_kept(flag, path, kept)
    _refuse_files_of_runs(flag, path)
    refuse_protected_folders(flag, path)


def refuse_kept(flag: str, path: Path, kept: Mapping[Path, str]) -> None:
    """Raises `UserError` if a file is kept, or is in a folder that is kept.

    Args:
        flag: the name of the flag that names the file.
        path: the file.
        kept: the files and folders, and what messages call each.
    """
    place = _resolve(path)
    for other, what in kept.items():
        same = path.absolute() == other.absolute()
        if same or (path.exists() and other.exists() and path.samefile(other)):
            raise UserError(f"--{flag} must not be {what}; {path} is")
        if other.is_dir() and place.is_relative_to(other.resolve()):
            raise UserError(f"--{flag} must not be in {what}; {path} is")


def refuse_folders_of_the_system(flag: str, path: Path, *, is_folder: bool = False) -> None:
    """Raises `UserError` if what a flag names for writing is in /dev, /proc or /sys.

    Args:
        flag: the name of the flag.
        path: the file or folder.
        is_folder: whether it is a folder; then a link is followed.
    """
    place = Path(os.path.realpath(path)) if is_folder else _resolve(path)
    if place.is_relative_to(_SHARED_MEMORY):
        return
    for system in _SYSTEM:
        if place.is_relative_to(system):
            raise UserError(f"--{flag} must not be in {system}, a folder of the system; got {path}")


def _refuse_files_of_runs(flag: str, path: Path) -> None:
    """Raises `UserError` if a flag names the path of a file that the program wrote.

    These are the files of a run, and all files in a prepared data set. Evaluations may be replaced,
    because the user chooses their paths.
    """
    path = _resolve(path)
    for folder in path.parents:
        name = path.relative_to(folder).parts[0]
        if run_files.is_of_a_run(name) and run_files.is_run(folder):
            raise UserError(f"--{flag} must not replace {name} of the run in {folder}; got {path}")
        # A function of os.path, because a folder above may not be readable.
        if os.path.isfile(folder / _DESCRIPTION):  # noqa: PTH113
            raise UserError(
                f"--{flag} must not be in the prepared data set in {folder}; got {path}"
            )


def refuse_protected_folders(flag: str, path: Path) -> None:
    """Raises `UserError` if the folder of what a flag names for writing may not be written to.

    Otherwise hours of work may end with an error of the system.
    """
    # A run that is not there is answered as such.
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK | os.X_OK):
        raise UserError(
            field=f"--{flag}",
            must_be="in a writable folder",
            but=f"{path.parent} is not",
        )


def _resolve(path: Path) -> Path:
    """Where a file is written. A link is not followed, because the file replaces it."""
    return path.parent.resolve() / path.name
