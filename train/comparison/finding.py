"""The runs that are compared: found in folders, and those that are left out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.foundation.errors import UserError
from train.run.runs import StoredRun
from train.series.planner import Planner
from train.series.run_fields import check_fields

_NEEDED = ("seed", "loss.name", "dataset.name", "select_by")


@dataclass(frozen=True)
class Found:
    """What was found in folders.

    Attributes:
        finished: the finished runs.
        left_out: the folders of other runs, with the reason.
    """

    finished: tuple[StoredRun, ...]
    left_out: Mapping[Path, str]


def find(folders: Sequence[str]) -> Found:
    """The runs in the subfolders of folders. A folder may be a single run, too.

    Raises:
        UserError: a folder does not exist, or none has a finished run.
    """
    workdirs: dict[Path, Path] = {}
    for name in folders:
        folder = Path(name).expanduser()
        if not name or not folder.is_dir():
            raise UserError(f"--runs must be folders of runs; there is no folder {name!r}")
        inside = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
        for workdir in inside:
            # A folder may be inside another one, or be a link to it.
            workdirs.setdefault(workdir.resolve(), workdir)
    found = _select(run for run in map(StoredRun.read, workdirs.values()) if run is not None)
    if not found.finished:
        unfinished = "" if not found.left_out else f", and {len(found.left_out)} that are not"
        raise UserError(
            f"--runs must be folders of runs; {', '.join(folders)} has no finished run{unfinished}"
        )
    return found


def _select(runs: Iterable[StoredRun]) -> Found:
    """The runs that are finished.

    Raises:
        UserError: a finished run lacks a field that a comparison needs, or its results are damaged.
    """
    finished, left_out = [], {}
    for run in runs:
        if run.is_finished:
            check_fields(run, _NEEDED)
            finished.append(run)
        else:
            left_out[run.workdir] = "not finished"
    return Found(tuple(finished), left_out)


def planned(planner: Planner) -> Found:
    """The planned runs; runs that are not finished are left out.

    Raises:
        UserError: the results of a run cannot be read.
    """
    folder, finished, left_out = planner.folder, [], {}
    for run in planner.runs:
        found = folder.finished(run)
        if found is None:
            left_out[folder.workdir(run)] = folder.status(run).value
        else:
            finished.append(found)
    return Found(tuple(finished), left_out)


def metrics(run: StoredRun, split: str) -> Mapping[str, Any]:
    """The metrics of a split by their names."""
    found = run.results.get(split)
    return found if isinstance(found, dict) else {}
