"""Checks the files that the command line names for writing."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from train.foundation.errors import UserError
from train.workdir import run_files


def checked(flag: str, value: str, kept: Mapping[Path, str] = MappingProxyType({})) -> Path:
    """The file that a flag names, if it can be written.

    Args:
        flag: the name of the flag.
        value: the value of the flag.
        kept: files that must not be overwritten, and what messages call each.

    Raises:
        UserError: its folder does not exist, its path is not that of a file, it is one of the
            files that must not be overwritten, or it is a run's own.
    """
    path = Path(value)
    if not path.name or path.is_dir():
        raise UserError(f"--{flag} must be a file; got {value or 'an empty text'}")
    if not path.parent.is_dir():
        raise UserError(f"--{flag} must be in a folder that is there; there is no {path.parent}")
    # Replacing a device or a pipe would remove it.
    if path.exists() and not path.is_file():
        raise UserError(f"--{flag} must be a file; {path} is a device or a pipe")
    for other, what in kept.items():
        same = path.absolute() == other.absolute()
        if same or (path.exists() and other.exists() and path.samefile(other)):
            raise UserError(f"--{flag} must not be {what}; {path} is")
    refuse_files_of_runs(flag, path)
    return path


def refuse_files_of_runs(flag: str, path: Path) -> None:
    """Raises `UserError` if a file that a flag names has the place of one that a run writes.

    Evaluations are no such files: whoever asks for one may say where it goes.
    """
    path = path.parent.resolve() / path.name
    for folder in path.parents:
        name = path.relative_to(folder).parts[0]
        if run_files.is_of_a_run(name) and run_files.is_run(folder):
            raise UserError(f"--{flag} must not replace {name} of the run in {folder}; got {path}")
