"""The folder of runs in which a table finds its planned runs."""

from enum import Enum
from pathlib import Path

from train.foundation import nested
from train.run.runs import StoredRun, identity
from train.series.planned_runs import PlannedRun

# How the last line of a run's log starts if training came to numbers that are not finite.
_DIVERGED = "error: training diverged"


class Status(Enum):
    """How far a run is."""

    ABSENT = "not started"
    UNFINISHED = "unfinished"
    DIVERGED = "diverged"
    FINISHED = "finished"


# The runs that still have to be made.
TO_MAKE = (Status.ABSENT, Status.UNFINISHED)


class RunsFolder:
    """A folder with one folder per run. The folders may have any names.

    The runs are read when the object is made: a later object sees what was finished since.

    Args:
        path: the folder; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._by_name: dict[str, StoredRun] = {}
        self._by_key: dict[str, StoredRun] = {}
        for workdir in sorted(path.iterdir()) if path.is_dir() else ():
            run = StoredRun.read(workdir) if workdir.is_dir() else None
            if run is not None:
                self._by_name[workdir.name] = run
                # If several folders have the same run, a finished one.
                if run.key not in self._by_key or not self._by_key[run.key].is_finished:
                    self._by_key[run.key] = run

    def found(self, planned: PlannedRun) -> StoredRun | None:
        """The run on disk; None if it is not started."""
        in_its_place = self._by_name.get(planned.name)
        if in_its_place is not None and in_its_place.key == planned.key:
            return in_its_place
        return self._by_key.get(planned.key)

    def finished(self, planned: PlannedRun) -> StoredRun | None:
        """The run on disk; None if it is not finished, a `UserError` if its results are damaged."""
        run = self.found(planned)
        return run if run is not None and run.is_finished else None

    def workdir(self, planned: PlannedRun) -> Path:
        """The folder of the run, or the one that it will have."""
        run = self.found(planned)
        return self.path / planned.name if run is None else run.workdir

    def log(self, planned: PlannedRun) -> Path:
        """The file that the commands of the run print to."""
        workdir = self.workdir(planned)
        return workdir.with_name(f"{workdir.name}.log")

    def last_line(self, planned: PlannedRun) -> str:
        """The last line that the commands of the run printed; empty if there is none."""
        try:
            lines = self.log(planned).read_text(errors="replace").split("\n")
        except OSError:
            return ""
        told = (line.strip() for line in reversed(lines))
        return next(filter(None, told), "")

    def foreign(self, planned: PlannedRun) -> list[str]:
        """How the run in this one's folder differs from it; empty if there is no other run."""
        run = self._by_name.get(planned.name)
        if self.found(planned) is not None or run is None:
            return []
        return nested.differences(identity(planned.config), identity(run.config))

    def status(self, planned: PlannedRun) -> Status:
        """How far the run is."""
        # The log of an earlier run may be there, whose folder was removed or is of another one.
        if self.found(planned) is None:
            return Status.ABSENT
        if self.finished(planned) is not None:
            return Status.FINISHED
        if self.last_line(planned).startswith(_DIVERGED):
            return Status.DIVERGED
        return Status.UNFINISHED
