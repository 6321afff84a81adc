"""Checks the files that the command line names for writing."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from train.foundation import kinds
from train.foundation.errors import UserError
from train.run import run_folder

# The formats of figures; others would be untested.
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
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
        kept: files that must not be overwritten, and what messages call each.
        suffixes: what its name may end with; empty for anything.

    Raises:
        UserError: it cannot be written, or would replace a file that is kept, or one of a run.
    """
    path = Path(value)
    # Replacing a device, or a link to one, would remove it.
    if not path.name or (path.exists() and not path.is_file()) or path.parent == Path("/dev"):
        raise UserError(f"--{flag} must be a file; got {value or 'an empty text'}")
    if suffixes and (wrong := kinds.wrong(path.suffix, kinds.one_of(suffixes))):
        raise UserError(field=f"--{flag}", must_be=f"a file whose suffix is {wrong}", got=path)
    _check_folder(flag, path)
    for other, what in kept.items():
        if path.resolve() == other.resolve():
            raise UserError(f"--{flag} must not be {what}; {path} is")
    return path


def new_folder(flag: str, value: str, must_be: str) -> Path:
    """The folder that a flag names, if it can be made; `must_be` says what it must be."""
    path = Path(value)
    if not path.name or os.path.lexists(path):
        raise UserError(f"--{flag} must be {must_be}; got {value or 'an empty text'}")
    _check_folder(flag, path)
    return path


def check_is_folder(flag: str, path: Path) -> None:
    """Raises `UserError` if the path of a flag is no folder, and cannot become one."""
    nearest = next(one for one in (path, *path.parents) if one.exists())
    if not nearest.is_dir():
        raise UserError(field=f"--{flag}", must_be="a folder", but=f"{nearest} is a file")


def _check_folder(flag: str, path: Path) -> None:
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        must_be = "in an existing folder that may be written to"
        raise UserError(field=f"--{flag}", must_be=must_be, got=path)
    if run_folder.is_kept(path):
        raise UserError(f"--{flag} must not be a file of a run; got {path}")
    if any((folder / _DESCRIPTION).is_file() for folder in path.parents):
        raise UserError(f"--{flag} must not be in a prepared data set; got {path}")
