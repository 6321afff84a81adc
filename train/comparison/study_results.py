"""The numbers of a study: means over the fresh seeds, and the contrasts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from train.comparison.study_file import PlannedContrast, Study
from train.foundation.errors import UserError
from train.reports.metric import Metric
from train.reports.outcomes import Outcomes
from train.run import run_folder
from train.series import collecting, contrasts
from train.series.collecting import Collected, Finals
from train.series.contrasts import Contrast
from train.series.planner import WORST, Planner
from train.series.statistics import Values

_POINTS = 100


@dataclass(frozen=True)
class ArmNumbers:
    """The numbers of an arm.

    Attributes:
        split: the split of the results.
        finals: its runs with the selected candidate.
        outcomes: by seed, which examples of the split have their label in a set; None after
            divergence.
    """

    split: str
    finals: Finals
    outcomes: Mapping[int, Outcomes | None]

    def values(self, metric: Metric) -> Values:
        """An accuracy by seed; a run that diverged counts as 0."""
        return Values.known(
            {
                seed: WORST if run is None else run.results[self.split].get(metric.name)
                for seed, run in self.finals.ended.items()
            }
        )

    def hits(self, metric: Metric, num_examples: int) -> np.ndarray:
        """Which examples' sets have the label, bool [seeds, n]. After divergence, no set has it."""
        nothing = np.zeros(num_examples, bool)
        return np.stack(
            [nothing if one is None else one.hits(metric) for one in self.outcomes.values()]
        )


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
        arms: its arms by name.
        contrasts: its contrasts.
        labels: the labels of the split; None if no run of a selected candidate has finished.
        collected: what has ended of its runs.
    """

    study: Study
    arms: Mapping[str, ArmNumbers]
    contrasts: tuple[ContrastNumbers, ...]
    labels: np.ndarray | None
    collected: Collected


def collect(study: Study, planner: Planner) -> StudyNumbers:
    """Reads the numbers of the runs that have ended.

    Raises:
        UserError: a file of a finished run cannot be read, or the test examples of two runs differ.
    """
    collected = collecting.collect(planner)
    arms = {name: _arm(collected.finals[arm], study.split) for name, arm in study.arms.items()}
    labels = _labels(arms.values(), study.split)
    return StudyNumbers(
        study=study,
        arms=arms,
        contrasts=_contrasts(study, arms, labels),
        labels=labels,
        collected=collected,
    )


def _arm(finals: Finals, split: str) -> ArmNumbers:
    outcomes = {
        seed: None if run is None else Outcomes.read(run_folder.outcomes(run.workdir, split))
        for seed, run in finals.ended.items()
    }
    return ArmNumbers(split, finals, outcomes)


def _labels(arms: Iterable[ArmNumbers], split: str) -> np.ndarray | None:
    """The labels of the split, which all runs share."""
    read = [
        (run, outcomes.labels)
        for arm in arms
        for seed, run in arm.finals.finished.items()
        if (outcomes := arm.outcomes[seed]) is not None
    ]
    for arm in arms:
        for seed, run in arm.finals.finished.items():
            outcomes = arm.outcomes[seed]
            if outcomes is not None and not outcomes.are_of_labels:
                raise UserError(
                    f"{run.workdir} has several classes an example (config.dataset.labels); a "
                    "study contrasts runs that have one"
                )
    for run, labels in read[1:]:
        first, expected = read[0]
        if not np.array_equal(labels, expected):
            raise UserError(
                f"{run.workdir} has other labels on {split} than {first.workdir}: the runs of a "
                "study need the same examples"
            )
    return read[0][1] if read else None


def _contrasts(
    study: Study, arms: Mapping[str, ArmNumbers], labels: np.ndarray | None
) -> tuple[ContrastNumbers, ...]:
    numbers = [_numbers(study, contrast, arms, labels) for contrast in study.contrasts]
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
    first, second = arms[contrast.first], arms[contrast.second]
    if labels is None or not all(len(arm.outcomes) == len(study.seeds) for arm in (first, second)):
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
