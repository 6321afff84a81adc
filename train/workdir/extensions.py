"""Runs that are trained for more epochs than they were started with."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.configuration import Config
from train.foundation import files, json_files
from train.foundation.errors import UserError
from train.workdir import run_files


def add(
    config: Config, earlier: Mapping[str, Any] | None, workdir: Path, *, extend: bool
) -> tuple[Config, int | None]:
    """The configuration with which the run in a workdir continues.

    Args:
        config: what the user asks for.
        earlier: the configuration of the run in the workdir; None if there is none.
        workdir: the folder of the run.
        extend: whether the run may be extended.

    Returns:
        What the user asks for, with the extensions of the run; and the epochs that the run had
        before this extension, None if it is not extended now.

    Raises:
        UserError: there is no run to extend, or it has more epochs than requested.
    """
    if earlier is None:
        if extend:
            raise UserError(f"--extend needs a run in --workdir; {workdir} holds none")
        # The configuration of an extended run may be given, and starts a run that is not extended.
        return dataclasses.replace(config, extensions=()), None
    made = tuple(map(tuple, earlier.get("extensions", ())))
    config = dataclasses.replace(config, extensions=made)
    before, after = earlier.get("num_epochs"), config.num_epochs
    if not extend or not isinstance(before, int) or before == after:
        return config, None
    if before > after:
        raise UserError(
            field="config.num_epochs",
            must_be=f"larger than the {before} of the run that is extended",
            got=after,
        )
    extension = (before, run_files.latest_step(workdir))
    return dataclasses.replace(config, extensions=(*made, extension)), before


def write(workdir: Path, config: Config, num_epochs_before: int) -> None:
    """Makes the run in a workdir the longer one.

    The results of the shorter run, its evaluations and its thresholds are kept in a folder of
    their own, because they do not belong to the longer one.
    """
    folder = workdir / f"until_epoch_{num_epochs_before}"
    # The results first: without them the run is not finished, and the next start moves the rest.
    for file in run_files.list_selected_files(workdir):
        folder.mkdir(exist_ok=True)
        file.rename(folder / file.name)
    files.write_whole(workdir / run_files.CONFIG, json_files.sealed(config.to_plain(), indent=2))
