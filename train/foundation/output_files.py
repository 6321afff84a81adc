"""The files that the command line names to be written."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from train.foundation.errors import UserError


def checked(flag: str, value: str, kept: Mapping[Path, str] = MappingProxyType({})) -> Path:
    """The file that a flag names.

    Args:
        flag: the flag.
        value: what it says.
        kept: files that must not give way to it, and what messages call each.

    Raises:
        UserError: its folder is not there, something else than a file has its place, or it is one
            of those that are kept.
    """
    path = Path(value)
    if not path.name or path.is_dir():
        raise UserError(f"--{flag} must be a file; got {value or 'an empty text'}")
    if not path.parent.is_dir():
        raise UserError(f"--{flag} must be in a folder that is there; there is no {path.parent}")
    # A device or a pipe would give way to a file.
    if path.exists() and not path.is_file():
        raise UserError(f"--{flag} must be a file; {path} is a device or a pipe")
    for other, what in kept.items():
        same = path.absolute() == other.absolute()
        if same or (path.exists() and other.exists() and path.samefile(other)):
            raise UserError(f"--{flag} must not be {what}; {path} is")
    return path
