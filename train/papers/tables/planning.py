"""The runs of a table, each once: first those of the tunings, then those that these select."""

from collections.abc import Sequence
from dataclasses import dataclass

from train.evaluation.metric import LOSS
from train.papers.tables.table import Cell, Table, Tuning
from train.series import planned_runs, statistics
from train.series.execution import Needed
from train.series.planned_runs import PlannedRun, distinct
from train.series.recipe import Recipe
from train.series.runs_folder import TO_MAKE, RunsFolder

# What stands for the network of a run in the value of an override, such as a file of weights.
NETWORK = "{model.name}"


@dataclass(frozen=True)
class Tuned:
    """The state of a tuning.

    Attributes:
        tuning: the tuning.
        scores: for each candidate, one score per seed: a share in [0, 1], or a loss. None stands
            for a run without a score.
        to_go: the number of runs that are not finished.
        selected: the index of the selected candidate; None before all runs have ended, and if no
            candidate can be selected.
    """

    tuning: Tuning
    scores: tuple[tuple[float | None, ...], ...]
    to_go: int
    selected: int | None

    @property
    def failed(self) -> bool:
        """Whether all runs have ended and no candidate can be selected."""
        return self.to_go == 0 and self.selected is None


@dataclass(frozen=True)
class Plan:
    """The runs of a table, in the order in which they are made.

    Attributes:
        grid: the runs of the tunings.
        finals: the runs of the cells that are known now; the first seed of every cell comes first.
        waiting: the largest number of runs that become known when the grid is finished.
    """

    grid: tuple[PlannedRun, ...]
    finals: tuple[PlannedRun, ...]
    waiting: int

    @property
    def runs(self) -> tuple[PlannedRun, ...]:
        """All runs that are known, each once."""
        return distinct([*self.grid, *self.finals])


class Planner:
    """Finds the runs of cells, given the runs of the tunings that are finished in a folder.

    Each tuning is read once: a later object sees what was finished since.

    Args:
        folder: the folder with the runs.
        seeds: the seeds of the cells; the tunings have their own.
        overrides: the fields that the user changes in all runs, as `name=value`; `NETWORK` in a
            value stands for the network of the run.
    """

    def __init__(
        self, folder: RunsFolder, seeds: Sequence[int], overrides: tuple[str, ...] = ()
    ) -> None:
        self.folder = folder
        self.seeds = tuple(seeds)
        self.overrides = overrides
        self._tuned: dict[Tuning, Tuned] = {}

    def plan(self, table: Table) -> Plan:
        """The runs of a table that are known now."""
        cells = list(table.cells.values())
        finals = [runs for runs in map(self.finals, cells) if runs is not None]
        waiting = [cell for cell in cells if self.finals(cell) is None and not self._failed(cell)]
        return Plan(
            grid=distinct(run for tuning in tunings(table) for run in self._grid(tuning)),
            finals=distinct(run for of_a_seed in zip(*finals, strict=True) for run in of_a_seed),
            waiting=len({(cell.recipe, cell.tuning) for cell in waiting}) * len(self.seeds),
        )

    def needed(self, table: Table) -> Needed:
        """The same for `execute`, which makes them."""
        plan = self.plan(table)
        return Needed(self.folder, plan.runs, plan.waiting)

    def check(self, table: Table) -> None:
        """Raises `UserError` if the user's overrides do not fit one of the runs."""
        for recipe in {cell.recipe for cell in table.cells.values()}:
            planned_runs.check(self._planned(recipe, 0))
        for tuning in tunings(table):
            for candidate in tuning.candidates:
                planned_runs.check(self._planned(tuning.recipe.changed(candidate), 0))

    def finals(self, cell: Cell) -> tuple[PlannedRun, ...] | None:
        """The runs of a cell, one per seed; None if its tuning has not selected a candidate."""
        recipe = self._recipe(cell)
        if recipe is None:
            return None
        evaluated = cell.metric.of_evaluation
        return tuple(self._planned(recipe, seed, evaluated) for seed in self.seeds)

    def tuned(self, tuning: Tuning) -> Tuned:
        """The state of a tuning, by its finished runs."""
        if tuning not in self._tuned:
            self._tuned[tuning] = self._tune(tuning)
        return self._tuned[tuning]

    def _tune(self, tuning: Tuning) -> Tuned:
        per_candidate = len(tuning.seeds)
        grid = self._grid(tuning)
        statuses = [self.folder.status(run) for run in grid]
        scores = [self._score(run, tuning) for run in grid]
        by_candidate = tuple(
            tuple(scores[first : first + per_candidate])
            for first in range(0, len(scores), per_candidate)
        )
        to_go = sum(status in TO_MAKE for status in statuses)
        selected = None
        if to_go == 0:
            smaller_is_better = tuning.metric == LOSS
            selected = statistics.best(by_candidate, smaller_is_better=smaller_is_better)
        return Tuned(tuning, by_candidate, to_go, selected)

    def _recipe(self, cell: Cell) -> Recipe | None:
        if cell.tuning is None:
            return cell.recipe
        tuned = self.tuned(cell.tuning)
        if tuned.selected is None:
            return None
        return cell.recipe.changed(cell.tuning.candidates[tuned.selected])

    def _planned(self, recipe: Recipe, seed: int, evaluated: bool = False) -> PlannedRun:
        network = planned_runs.load(recipe)["model"]["name"]
        overrides = tuple(override.replace(NETWORK, network) for override in self.overrides)
        return PlannedRun(recipe, seed, overrides, evaluated)

    def _failed(self, cell: Cell) -> bool:
        return cell.tuning is not None and self.tuned(cell.tuning).failed

    def _grid(self, tuning: Tuning) -> tuple[PlannedRun, ...]:
        return tuple(
            self._planned(tuning.recipe.changed(candidate), seed)
            for candidate in tuning.candidates
            for seed in tuning.seeds
        )

    def _score(self, planned: PlannedRun, tuning: Tuning) -> float | None:
        run = self.folder.finished(planned)
        return None if run is None else run.validation(tuning.metric)


def tunings(table: Table) -> tuple[Tuning, ...]:
    """The tunings of a table's cells, each once."""
    found = (cell.tuning for cell in table.cells.values())
    return tuple(dict.fromkeys(tuning for tuning in found if tuning is not None))
