"""The runs of arms that are known so far: of the searches, the finalists, the selected ones."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train.foundation import nested
from train.foundation.errors import UserError
from train.reports.metric import Metric
from train.run.runs import StoredRun, identity
from train.series import planned_runs
from train.series.planned_runs import SPLIT, PlannedRun, distinct
from train.series.recipe import Overrides, Recipe
from train.series.runs_folder import TO_MAKE, RunsFolder
from train.series.search import Drawn, Search, begin, extended

# A placeholder for the network of a run in overrides, such as the path of a file of weights.
NETWORK = "{model.name}"
# The accuracy that a diverged run counts as: the worst.
WORST = 0.0


@dataclass(frozen=True)
class Arm:
    """One of the things that are compared: a recipe, and a search of some of its fields.

    Attributes:
        recipe: the configuration without the seed and the tuned fields.
        search: finds the tuned fields; None for none.
    """

    recipe: Recipe
    search: Search | None = None


@dataclass(frozen=True)
class Trial:
    """A run of a candidate that has ended.

    Attributes:
        score: the validation metric; None without one, as after divergence.
        run: the run; None if training diverged.
    """

    score: float | None
    run: StoredRun | None

    @property
    def counted(self) -> float:
        """The score, by which candidates are compared."""
        return WORST if self.score is None else self.score


@dataclass(frozen=True)
class Tuned:
    """The state of a search.

    Attributes:
        drawn: the candidates that are known now, and the ranges.
        trials: for each candidate its runs that have ended, by seed.
        finalists: the candidates that are run with all seeds, as indices, the best first; empty
            before all candidates have a score, and if all have diverged.
        selected: the index of the selected candidate; None before all runs have ended, and if all
            candidates have diverged.
        failed: whether all candidates have diverged.
        runs: the runs that are known now.
    """

    drawn: Drawn
    trials: tuple[Mapping[int, Trial], ...]
    finalists: tuple[int, ...]
    selected: int | None
    failed: bool
    runs: tuple[PlannedRun, ...]

    @property
    def fields(self) -> Overrides | None:
        """The fields of the selected candidate."""
        return None if self.selected is None else self.drawn.candidates[self.selected]

    @property
    def has_ended(self) -> bool:
        """Whether a candidate is selected, or none can be."""
        return self.failed or self.selected is not None

    @property
    def to_go(self) -> int:
        """The number of known runs that have not ended."""
        return len(self.runs) - sum(map(len, self.trials))


# The state for an arm without a search.
_UNTUNED = Tuned(begin((), 1, 0), ({},), (), selected=0, failed=False, runs=())


class Planner:
    """Finds the runs of arms, given those that are finished in a folder.

    Each search is read once: a later object sees what was finished since.

    Args:
        folder: the folder with the runs.
        arms: the arms.
        seeds: the seeds of their runs; the searches have their own.
        split: the split that the runs are compared on.
        overrides: the fields that the user changes in all runs, as `name=value`; `NETWORK` in a
            value stands for the network of the run.
    """

    def __init__(
        self,
        folder: RunsFolder,
        arms: Iterable[Arm],
        seeds: Sequence[int],
        *,
        split: str = SPLIT,
        overrides: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.arms = tuple(dict.fromkeys(arms))
        self.searches = tuple(dict.fromkeys(arm.search for arm in self.arms if arm.search))
        self.seeds = tuple(seeds)
        self.split = split
        self.overrides = overrides
        self._tuned: dict[Search, Tuned] = {}

    @functools.cached_property
    def runs(self) -> tuple[PlannedRun, ...]:
        """The runs that are known now, each once, in order: the runs of the searches come first.

        Raises:
            UserError: two of them would have one folder.
        """
        finals = [runs for runs in map(self.finals, self.arms) if runs is not None]
        found = distinct(
            [
                *(run for search in self.searches for run in self.tuned(search).runs),
                # The first seed of every arm comes first.
                *(run for of_a_seed in zip(*finals, strict=True) for run in of_a_seed),
            ]
        )
        self._check_folders(found)
        return found

    @property
    def to_make(self) -> list[PlannedRun]:
        """The runs that have not ended."""
        return [run for run in self.runs if self.folder.status(run) in TO_MAKE]

    @property
    def waiting(self) -> int:
        """The approximate number of runs that become known when these are finished."""
        # If no search is extended further.
        arms = [arm for arm in self.arms if not self.tuned(arm.search).has_ended]
        finalists = [
            search.finalists * (len(search.seeds) - 1)
            for search in dict.fromkeys(arm.search for arm in arms)
            if search is not None and not self.tuned(search).finalists
        ]
        return sum(finalists) + len(arms) * len(self.seeds)

    @property
    def configs(self) -> dict[Path, dict[str, Any]]:
        """The configurations of the runs by their workdirs."""
        return {self.folder.workdir(run): run.config for run in self.runs}

    def check(self) -> None:
        """Raises `UserError` if the user's overrides do not fit one of the runs."""
        recipes = [arm.recipe for arm in self.arms]
        for search in self.searches:
            recipes += search.recipes
        for recipe in recipes:
            planned_runs.check(self._plan(recipe, 0))

    def tuned(self, search: Search | None) -> Tuned:
        """The state of a search; without one, the only candidate changes nothing."""
        if search is None:
            return _UNTUNED
        if search not in self._tuned:
            self._tuned[search] = self._tune(search)
        return self._tuned[search]

    def finals(self, arm: Arm) -> tuple[PlannedRun, ...] | None:
        """The runs of an arm's selected candidate, one per seed; None before it is selected."""
        fields = self.tuned(arm.search).fields
        if fields is None:
            return None
        recipe = arm.recipe.changed(fields)
        return tuple(self._plan(recipe, seed) for seed in self.seeds)

    def ended(self, runs: Iterable[PlannedRun]) -> dict[int, StoredRun | None]:
        """The runs that have ended, by seed; None if training diverged.

        Raises:
            UserError: the data set lacks the split that the runs are compared on. That is known
                when the first run is finished.
        """
        ended = (run for run in runs if self.folder.status(run) not in TO_MAKE)
        found = {run.seed: self.folder.finished(run) for run in ended}
        for run in found.values():
            if run is not None and self.split not in run.results:
                raise UserError(f"{run.workdir} has no {self.split} split: its data set has none")
        return found

    def _check_folders(self, runs: Iterable[PlannedRun]) -> None:
        """Raises `UserError` for two runs with one folder, as of recipes of one name."""
        by_folder: dict[Path, PlannedRun] = {}
        for run in runs:
            workdir = self.folder.workdir(run)
            first = by_folder.setdefault(workdir, run)
            if first is not run:
                differing = nested.differences(identity(first.config), identity(run.config))
                raise UserError(
                    f"{workdir} would be the folder of two runs, which differ in "
                    f"{', '.join(differing)}; give one of the recipes another name, or its runs "
                    "another --runs"
                )

    def _tune(self, search: Search) -> Tuned:
        first, *others = search.seeds
        drawn = search.first
        while True:
            runs = [self._candidate(search, fields, first) for fields in drawn.candidates]
            trials = [self._trials(search, [run]) for run in runs]
            failed = all(trials) and all(trial[first].score is None for trial in trials)
            if failed or not all(trials):
                return Tuned(drawn, tuple(trials), (), None, failed, tuple(runs))
            best_first = _rank(trials)
            longer = extended(drawn, drawn.candidates[best_first[0]])
            if longer is None:
                break
            drawn = longer
        finalists = tuple(best_first[: search.finalists])
        for index in finalists:
            again = [self._candidate(search, drawn.candidates[index], seed) for seed in others]
            runs += again
            trials[index] |= self._trials(search, again)
        selected = None
        if all(len(trials[index]) == len(search.seeds) for index in finalists):
            selected = finalists[_rank([trials[index] for index in finalists])[0]]
        return Tuned(drawn, tuple(trials), finalists, selected, False, tuple(runs))

    def _candidate(self, search: Search, fields: Overrides, seed: int) -> PlannedRun:
        return self._plan(search.recipe.changed(fields), seed)

    def _trials(self, search: Search, runs: Iterable[PlannedRun]) -> dict[int, Trial]:
        """The runs of a candidate that have ended, by seed."""
        return {
            seed: Trial(None if run is None else _score(run, search.metric), run)
            for seed, run in self.ended(runs).items()
        }

    def _plan(self, recipe: Recipe, seed: int) -> PlannedRun:
        given = dict(override.split("=", 1) for override in self.overrides)
        network = given.get("model.name") or planned_runs.load(recipe)["model"]["name"]
        overrides = tuple(override.replace(NETWORK, network) for override in self.overrides)
        return PlannedRun(recipe, seed, overrides)


def _rank(trials: Sequence[Mapping[int, Trial]]) -> list[int]:
    """The indices by their mean score, the best first; equal ones in their order."""
    means = [float(np.mean([one.counted for one in runs.values()])) for runs in trials]
    return sorted(range(len(means)), key=lambda index: -means[index])


def _score(run: StoredRun, metric: Metric) -> float | None:
    """A metric of the validation split with the selected parameters; None without a value."""
    found: Mapping[str, float | None] = run.results.get("validation", {})
    if metric.name not in found:
        raise UserError(f"{run.workdir} has no {metric.name} on validation to tune by")
    return found[metric.name]
