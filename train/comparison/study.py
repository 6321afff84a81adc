"""The runs of a study: the searches, the finalists on other seeds, and the selected candidates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from train.comparison import candidates
from train.comparison.candidates import Search
from train.comparison.study_file import Arm, Study
from train.foundation.errors import UserError
from train.series.execution import Needed
from train.series.planned_runs import PlannedRun, distinct
from train.series.recipe import Overrides
from train.series.runs_folder import TO_MAKE, RunsFolder
from train.workdir.runs import Run

# What a run that diverged counts as: the worst accuracy.
_WORST = 0.0


@dataclass(frozen=True)
class Trial:
    """A run of a candidate that has ended.

    Attributes:
        score: the validation metric; None if training diverged.
        seconds: how long its training took; None if it diverged.
    """

    score: float | None
    seconds: float | None

    @property
    def counted(self) -> float:
        """The score, by which candidates are compared."""
        return _WORST if self.score is None else self.score


@dataclass(frozen=True)
class Tuned:
    """The state of the search of an arm.

    Attributes:
        search: the candidates that are known now, and the ranges.
        trials: for each candidate its runs that have ended, by tuning seed.
        finalists: the candidates that are run with all tuning seeds, as indices, the best first;
            empty before all candidates have a score, and if all have diverged.
        selected: the index of the selected candidate; None before all runs have ended, and if all
            candidates have diverged.
        failed: whether all candidates have diverged.
        runs: the runs that are known now.
    """

    search: Search
    trials: tuple[Mapping[int, Trial], ...]
    finalists: tuple[int, ...]
    selected: int | None
    failed: bool
    runs: tuple[PlannedRun, ...]

    @property
    def selected_fields(self) -> Overrides | None:
        """The tuned fields of the selected candidate."""
        return None if self.selected is None else self.search.candidates[self.selected]


class Planner:
    """Finds the runs of a study, given those that are finished in a folder.

    Each search is read once: a later object sees what was finished since.

    Args:
        study: the study.
        folder: the folder with the runs.
    """

    def __init__(self, study: Study, folder: RunsFolder) -> None:
        self.study = study
        self.folder = folder
        self._tuned: dict[str, Tuned] = {}

    def needed(self) -> Needed:
        """The runs that are known now: first those of the searches, arm by arm."""
        tuned = [self.tuned(arm) for arm in self.study.arms]
        finals = [runs for runs in map(self.finals, self.study.arms) if runs is not None]
        return Needed(
            self.folder,
            distinct(
                [
                    *(run for one in tuned for run in one.runs),
                    # The first seed of every arm comes first.
                    *(run for of_a_seed in zip(*finals, strict=True) for run in of_a_seed),
                ]
            ),
            sum(map(self._waiting, self.study.arms)),
        )

    def tuned(self, arm: Arm) -> Tuned:
        """The state of the search of an arm."""
        if arm.name not in self._tuned:
            self._tuned[arm.name] = self._tune(arm)
        return self._tuned[arm.name]

    def finals(self, arm: Arm) -> tuple[PlannedRun, ...] | None:
        """The runs of an arm's selected candidate, one per seed; None before it is selected."""
        fields = self.tuned(arm).selected_fields
        if fields is None:
            return None
        return tuple(PlannedRun(arm.recipe.changed(fields), seed) for seed in self.study.seeds)

    def finished(self, planned: PlannedRun) -> Run | None:
        """A run on disk; None if it is not finished.

        Raises:
            UserError: its data set lacks the split that the study needs. That is known when the
                first run is finished.
        """
        run, split = self.folder.finished(planned), self.study.split
        if run is not None and split not in run.results:
            raise UserError(f"{run.workdir} has no {split} split: its data set has none")
        return run

    def _tune(self, arm: Arm) -> Tuned:
        if not arm.space:
            return Tuned(self.study.search(arm), ({},), (), selected=0, failed=False, runs=())
        search, trials = self._search(arm)
        first, *others = self.study.tuning_seeds
        planned = [self._run(arm, candidate, first) for candidate in search.candidates]
        ended = all(trials)
        failed = ended and _all_diverged(trials)
        finalists: tuple[int, ...] = ()
        selected = None
        if ended and not failed:
            finalists = tuple(_best_first(trials)[: self.study.finalists])
            for index in finalists:
                for seed in others:
                    run = self._run(arm, search.candidates[index], seed)
                    planned.append(run)
                    trials[index] |= self._trial(run)
            if all(len(trials[index]) == len(self.study.tuning_seeds) for index in finalists):
                selected = finalists[_best_first([trials[index] for index in finalists])[0]]
        return Tuned(search, tuple(trials), finalists, selected, failed, tuple(planned))

    def _search(self, arm: Arm) -> tuple[Search, list[dict[int, Trial]]]:
        """The candidates with their first runs; extended as far as the scores tell."""
        search = self.study.search(arm)
        while True:
            first = self.study.tuning_seeds[0]
            trials = [self._trial(self._run(arm, one, first)) for one in search.candidates]
            if not all(trials) or _all_diverged(trials):
                return search, trials
            longer = candidates.extended(search, search.candidates[_best_first(trials)[0]])
            if longer is None:
                return search, trials
            search = longer

    def _run(self, arm: Arm, candidate: Overrides, seed: int) -> PlannedRun:
        return PlannedRun(arm.recipe.changed(candidate), seed)

    def _trial(self, planned: PlannedRun) -> dict[int, Trial]:
        """The run by its seed; empty if it has not ended."""
        if self.folder.status(planned) in TO_MAKE:
            return {}
        run = self.finished(planned)
        if run is None:
            return {planned.seed: Trial(None, None)}
        seconds = sum(run.results["epoch_seconds"])
        return {planned.seed: Trial(run.validation(self.study.select_by), seconds)}

    def _waiting(self, arm: Arm) -> int:
        """The runs that are not known yet, if the search of the arm is not extended further."""
        tuned = self.tuned(arm)
        if tuned.selected is not None or tuned.failed:
            return 0
        finalists = 0 if tuned.finalists else self.study.finalists
        return finalists * (len(self.study.tuning_seeds) - 1) + len(self.study.seeds)


def _best_first(trials: Sequence[Mapping[int, Trial]]) -> list[int]:
    """The indices by their mean score, the best first; of equal ones, the first."""
    means = [float(np.mean([one.counted for one in runs.values()])) for runs in trials]
    return sorted(range(len(means)), key=lambda index: -means[index])


def _all_diverged(trials: Sequence[Mapping[int, Trial]]) -> bool:
    return all(one.score is None for runs in trials for one in runs.values())
