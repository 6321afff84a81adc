"""The files and folders that the configuration of a run names: no command may write there."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from train.foundation.errors import UserError
from train.foundation.nested import flatten
from train.workdir import run_files

# A text may also be the name of a loss, and a folder may have that name. This one is a path.
_FOLDER = "dataset.path"


def of_run(workdir: Path) -> dict[Path, str]:
    """What the configuration of the run in a workdir names; nothing if there is no run.

    Returns:
        Paths that exist, and what messages call each.

    Raises:
        UserError: the configuration is damaged.
    """
    config = run_files.read_config(workdir)
    return {} if config is None else of_configs({workdir: config})


def of_configs(configs: Mapping[Path, Mapping[str, Any]]) -> dict[Path, str]:
    """What configurations of runs, nested, name; by the workdirs of the runs. See `of_run`."""
    return {
        path: f"{field} of the run in {workdir}"
        for workdir, config in configs.items()
        for path, field in named_by(config)
    }


def named_by(config: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """The paths that exist and that a configuration, nested, names, with their fields."""
    for field, value in flatten(config):
        # A third-party data set, network or loss may name files in fields of its own.
        if isinstance(value, str):
            path = _place(value)
            if _is_kept(field, path):
                yield Path(path), f"config.{field}"


@contextlib.contextmanager
def naming_place(path: str | None, flag: str) -> Iterator[None]:
    """Adds, to the error for missing data, the flag that names their new place.

    Args:
        path: `config.dataset.path` of a started run; None if it does not have this field.
        flag: the flag.
    """
    try:
        yield
    except UserError as error:
        if path is None or os.path.lexists(_place(path)):
            raise
        raise UserError(
            f"{error}; if the data of the run were moved, give their new place with {flag}"
        ) from error


def _place(text: str) -> str:
    """The path in a text, which may be after the sign of data sets of Hugging Face."""
    return os.path.expanduser(text.removeprefix("hf:"))  # noqa: PTH111 (fails for no text)


def _is_kept(field: str, path: str) -> bool:
    # Functions of os.path do not raise for any text; most texts are names of something else.
    return os.path.isfile(path) or (field == _FOLDER and os.path.isdir(path))  # noqa: PTH112, PTH113
