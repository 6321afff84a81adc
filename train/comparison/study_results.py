"""The numbers of a study: means over the fresh seeds, and the contrasts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from train.comparison.study import Planner, Tuned
from train.comparison.study_file import Arm, PlannedContrast, Study
from train.evaluation.metric import Metric
from train.evaluation.outcomes import Outcomes
from train.foundation.errors import UserError
from train.series import contrasts, statistics
from train.series.contrasts import Contrast
from train.series.runs_folder import TO_MAKE
from train.series.statistics import Summary
from train.workdir import run_files
from train.workdir.runs import Run

_POINTS = 100
# What a run that diverged counts as: the worst accuracy.
_OF_DIVERGED = 0.0


@dataclass(frozen=True)
class Final:
    """A run of a selected candidate that has ended.

    Attributes:
        run: the run; None if it diverged.
        metrics: the metrics of the study's split by their names; those of a run that diverged are
            unknown, and count as 0.
        outcomes: which examples of the split have their label in a set; None if it diverged.
    """

    run: Run | None
    metrics: Mapping[str, float | None]
    outcomes: Outcomes | None

    def value(self, metric: Metric) -> float | None:
        """An accuracy; None if the run has none."""
        return _OF_DIVERGED if self.run is None else self.metrics.get(metric.name)


@dataclass(frozen=True)
class ArmNumbers:
    """The numbers of an arm.

    Attributes:
        arm: the arm.
        tuned: its search.
        finals: by seed, its runs that have ended.
    """

    arm: Arm
    tuned: Tuned
    finals: Mapping[int, Final]

    def summary(self, metric: Metric) -> Summary | None:
        """The mean over seeds and its interval; None if no run has the metric."""
        found = (final.value(metric) for final in self.finals.values())
        values = [value for value in found if value is not None]
        return statistics.summarize(values) if values else None

    def hits(self, metric: Metric, num_examples: int) -> np.ndarray:
        """Which examples' sets have the label, bool [seeds, n]. After divergence none have it."""
        nothing = np.zeros(num_examples, bool)
        return np.stack(
            [
                nothing if final.outcomes is None else final.outcomes.hits(metric)
                for final in self.finals.values()
            ]
        )

    @property
    def diverged(self) -> tuple[int, ...]:
        """The seeds whose training diverged."""
        return tuple(seed for seed, final in self.finals.items() if final.run is None)


@dataclass(frozen=True)
class ContrastNumbers:
    """A contrast with its numbers.

    Attributes:
        planned: the contrast.
        numbers: its numbers, as shares; None if runs are missing.
        adjusted: the p-value by Holm's method over the primary contrasts of the study; None for
            others, and until all primary contrasts have their runs.
        equivalence: the p-value of the two one-sided tests; None if none is asked for.
    """

    planned: PlannedContrast
    numbers: Contrast | None
    adjusted: float | None
    equivalence: float | None


@dataclass(frozen=True)
class StudyNumbers:
    """A study with its numbers.

    Attributes:
        study: the study.
        arms: its arms.
        contrasts: its contrasts.
        labels: the labels of the split; None if no run of a selected candidate has finished.
        foreign: by folder, how the run in it differs from the planned run of that name.
        to_go: the number of runs that are not finished, as far as they are known.
    """

    study: Study
    arms: tuple[ArmNumbers, ...]
    contrasts: tuple[ContrastNumbers, ...]
    labels: np.ndarray | None
    foreign: Mapping[str, list[str]]
    to_go: int


def collect(planner: Planner) -> StudyNumbers:
    """Reads the numbers of the runs that have ended.

    Raises:
        UserError: a file of a finished run cannot be read, or the test examples of two runs differ.
    """
    arms = tuple(_arm(planner, arm) for arm in planner.study.arms)
    labels = _labels(arms, planner.study.split)
    needed, folder = planner.needed(), planner.folder
    foreign = {str(folder.workdir(run)): folder.foreign(run) for run in needed.runs}
    return StudyNumbers(
        study=planner.study,
        arms=arms,
        contrasts=_contrasts(planner.study, arms, labels),
        labels=labels,
        foreign={path: differing for path, differing in foreign.items() if differing},
        to_go=sum(folder.status(run) in TO_MAKE for run in needed.runs) + needed.waiting,
    )


def _arm(planner: Planner, arm: Arm) -> ArmNumbers:
    folder, split = planner.folder, planner.study.split
    finals = {}
    for planned in planner.finals(arm) or ():
        if folder.status(planned) in TO_MAKE:
            continue
        run = planner.finished(planned)
        if run is None:
            finals[planned.seed] = Final(None, {}, None)
        else:
            outcomes = Outcomes.read(run_files.outcomes(run.workdir, split))
            finals[planned.seed] = Final(run, run.results[split], outcomes)
    return ArmNumbers(arm, planner.tuned(arm), finals)


def _labels(arms: Iterable[ArmNumbers], split: str) -> np.ndarray | None:
    """The labels of the split, which all runs share."""
    first: Run | None = None
    labels: np.ndarray | None = None
    for final in (final for arm in arms for final in arm.finals.values()):
        if final.run is None or final.outcomes is None:
            continue
        if first is None or labels is None:
            first, labels = final.run, final.outcomes.labels
        elif not np.array_equal(labels, final.outcomes.labels):
            raise UserError(
                f"{final.run.workdir} has other labels on {split} than {first.workdir}: the runs "
                "of a study need the same examples"
            )
    return labels


def _contrasts(
    study: Study, arms: Iterable[ArmNumbers], labels: np.ndarray | None
) -> tuple[ContrastNumbers, ...]:
    of_arms = {one.arm.name: one for one in arms}
    numbers = [_numbers(study, contrast, of_arms, labels) for contrast in study.contrasts]
    adjusted: dict[int, float] = {}
    primary = [index for index, contrast in enumerate(study.contrasts) if contrast.primary]
    p_values = [one.p_value for index in primary if (one := numbers[index]) is not None]
    if len(p_values) == len(primary):
        adjusted = dict(zip(primary, contrasts.holm(p_values), strict=True))
    return tuple(
        ContrastNumbers(contrast, one, adjusted.get(index), _equivalence(study, contrast, one))
        for index, (contrast, one) in enumerate(zip(study.contrasts, numbers, strict=True))
    )


def _numbers(
    study: Study,
    contrast: PlannedContrast,
    arms: Mapping[str, ArmNumbers],
    labels: np.ndarray | None,
) -> Contrast | None:
    first, second = arms[contrast.first.name], arms[contrast.second.name]
    if labels is None or not all(len(arm.finals) == len(study.seeds) for arm in (first, second)):
        return None
    return contrasts.contrast(
        first.hits(contrast.metric, len(labels)),
        second.hits(contrast.metric, len(labels)),
        labels,
        macro=contrast.metric.average == "macro",
    )


def _equivalence(study: Study, contrast: PlannedContrast, numbers: Contrast | None) -> float | None:
    if numbers is None or contrast.equivalence is None:
        return None
    return contrasts.equivalence(numbers, contrast.equivalence / _POINTS, len(study.seeds) - 1)
