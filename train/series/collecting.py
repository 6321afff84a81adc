"""The runs of a planner that have ended."""

from collections.abc import Mapping
from dataclasses import dataclass

from train.run.runs import StoredRun
from train.series.planned_runs import PlannedRun
from train.series.planner import Arm, Planner, Tuned
from train.series.search import Search


@dataclass(frozen=True)
class Finals:
    """The runs of an arm with the selected candidate.

    Attributes:
        tuned: the search of the arm.
        planned: the runs, one per seed; empty before a candidate is selected.
        ended: by seed, those that have ended; None for one that diverged.
    """

    tuned: Tuned
    planned: tuple[PlannedRun, ...]
    ended: Mapping[int, StoredRun | None]

    @property
    def finished(self) -> dict[int, StoredRun]:
        """The finished runs by seed."""
        return {seed: run for seed, run in self.ended.items() if run is not None}

    @property
    def to_go(self) -> int:
        """The number of runs that have not ended."""
        return len(self.planned) - len(self.ended)

    @property
    def diverged(self) -> tuple[int, ...]:
        """The seeds whose training diverged."""
        return tuple(seed for seed, run in self.ended.items() if run is None)


@dataclass(frozen=True)
class Collected:
    """All runs that have ended.

    Attributes:
        finals: by arm, its runs after the search.
        searches: the searches with their states.
        foreign: by folder, how the run in it differs from the planned run of that name.
        to_go: the number of runs that are not finished, as far as they are known.
    """

    finals: Mapping[Arm, Finals]
    searches: Mapping[Search, Tuned]
    foreign: Mapping[str, list[str]]
    to_go: int


def collect(planner: Planner) -> Collected:
    """Reads the runs that have ended.

    Raises:
        UserError: a file of a finished run cannot be read.
    """
    folder = planner.folder
    foreign = {str(folder.workdir(run)): folder.foreign(run) for run in planner.runs}
    return Collected(
        finals={arm: _finals(planner, arm) for arm in planner.arms},
        searches={search: planner.tuned(search) for search in planner.searches},
        foreign={path: differing for path, differing in foreign.items() if differing},
        to_go=len(planner.to_make) + planner.waiting,
    )


def _finals(planner: Planner, arm: Arm) -> Finals:
    planned = planner.finals(arm) or ()
    return Finals(planner.tuned(arm.search), planned, planner.ended(planned))
