"""The files that the command line names to be written."""

from pathlib import Path

from train.errors import UserError


def checked(flag: str, value: str) -> Path:
    """The file that a flag names.

    Raises:
        UserError: its folder is not there, or something else than a file has its place.
    """
    path = Path(value)
    if not path.name or path.is_dir():
        raise UserError(f"--{flag} must be a file; got {value or 'an empty text'}")
    if not path.parent.is_dir():
        raise UserError(f"--{flag} must be in a folder that is there; there is no {path.parent}")
    # A device or a pipe would give way to a file.
    if path.exists() and not path.is_file():
        raise UserError(f"--{flag} must be a file; {path} is a device or a pipe")
    return path
