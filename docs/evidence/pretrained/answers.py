"""The primary contrasts of settings whose runs are complete, by the rules of the design.

Each side is a loss with the head that validation prefers, in both searches. The standard error has
the seeds, the test examples, and the luck of the search.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from answers import LEVEL
from better_heads import standard_error
from effects import Effect, effect

from pretrained.arms import Chosen
from pretrained.design import Contrast, Rule, Setting, Study
from train.series import contrasts


@dataclass(frozen=True)
class Finished:
    """A setting whose runs are complete.

    Attributes:
        setting: the setting.
        chosen: the selected candidates of its arms.
        labels: of the test examples, [n].
    """

    setting: Setting
    chosen: Sequence[Chosen]
    labels: np.ndarray


@dataclass(frozen=True)
class Difference:
    """A contrast with its numbers, as shares.

    Attributes:
        setting: its setting.
        contrast: the contrast.
        estimate: the first minus the second, a mean over both searches, seeds and test examples.
        of_seeds: the standard error of seeds and test examples.
        of_searches: that of the luck of the searches.
        freedom: the degrees of freedom of Student's t.
        published: the published effects, in points.
    """

    setting: Setting
    contrast: Contrast
    estimate: float
    of_seeds: float
    of_searches: float
    freedom: float
    published: tuple[Effect, ...]

    @property
    def found(self) -> contrasts.Contrast:
        """Its interval, p-value and detectable effect, before any correction."""
        error = math.hypot(self.of_seeds, self.of_searches)
        return contrasts.with_error(self.estimate, error, self.freedom)


@dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
        difference: the contrast with its numbers.
        adjusted: the p-value after Holm's correction over all primary contrasts of the study.
        detectable: the true difference that is found with a probability of 80 %, after
            Bonferroni's correction.
        verdict: better, worse, equivalent, cannot tell or undecided.
    """

    difference: Difference
    adjusted: float
    detectable: float
    verdict: str


def with_better_head(chosen: Sequence[Chosen], loss: str, rule: Rule = "correct") -> list[Chosen]:
    """By search the selected candidate of a loss, with the head of higher validation accuracy."""
    by_search: dict[str, Chosen] = {}
    for one in chosen:
        if (one.loss, one.rule) == (loss, rule):
            known = by_search.get(one.search)
            if known is None or one.validation > known.validation:
                by_search[one.search] = one
    return [by_search[search] for search in sorted(by_search)]


def hits(chosen: Sequence[Chosen]) -> np.ndarray:
    """The share of the searches whose set has the label, [seeds, n]."""
    return np.mean([next(iter(one.hits.values())) for one in chosen], axis=0)


def search_variance(study: Study, finished: Sequence[Finished]) -> tuple[float, int]:
    """The variance of an accuracy between searches, and its degrees of freedom.

    Half of the squared difference of the two searches of a loss, a mean over losses and settings.
    """
    halves = []
    for one in finished:
        for loss in study.losses_of(one.setting):
            if loss.searches == 2:
                first, second = (
                    hits([side]).mean() for side in with_better_head(one.chosen, loss.name)
                )
                halves.append((first - second) ** 2 / 2)
    return float(np.mean(halves)), len(halves)


def differences(study: Study, finished: Sequence[Finished]) -> list[Difference]:
    """The primary contrasts of these settings.

    The variance between searches is that of the settings of one question and one data set.
    """
    found = []
    for one in finished:
        alike = [
            other
            for other in finished
            if (other.setting.question, other.setting.data_set)
            == (one.setting.question, one.setting.data_set)
        ]
        variance, search_freedom = search_variance(study, alike)
        for contrast in study.contrasts_of(one.setting):
            first, second = (
                hits(with_better_head(one.chosen, loss))
                for loss in (contrast.first, contrast.second)
            )
            values = first - second
            macro = one.setting.question == "tail"
            of_seeds = standard_error(values, one.labels, macro=macro)
            # Each side is a mean over two searches, which has half the variance of one.
            total = of_seeds**2 + variance
            freedom = (
                total**2 / (of_seeds**4 / (len(values) - 1) + variance**2 / search_freedom)
                if total
                else float(len(values) - 1)
            )
            found.append(
                Difference(
                    one.setting,
                    contrast,
                    float(values.mean()),
                    of_seeds,
                    math.sqrt(variance),
                    freedom,
                    published(contrast, one.setting),
                )
            )
    return found


def published(contrast: Contrast, setting: Setting) -> tuple[Effect, ...]:
    """The published effects of a contrast in a setting."""
    return tuple(
        effect(contrast.losses, *(part.format(wrong=f"{setting.wrong:g}") for part in cell))
        for cell in contrast.cells
    )


def answered(study: Study, found: Sequence[Difference]) -> list[Answer]:
    """The answers, corrected for all primary contrasts of the study, also if not all have run."""
    planned = sum(len(study.contrasts_of(setting)) for setting in study.settings)
    missing = planned - len(found)
    # A contrast that has not run counts as one with a p-value of 1, which corrects the others most.
    adjusted = contrasts.holm([*(one.found.p_value for one in found), *[1.0] * missing])
    return [
        _answer(study, one, p_value, planned)
        for one, p_value in zip(found, adjusted[: len(found)], strict=True)
    ]


def _answer(study: Study, one: Difference, adjusted: float, planned: int) -> Answer:
    numbers = one.found
    detectable = contrasts.minimal_detectable(
        numbers.standard_error, one.freedom, level=LEVEL / planned
    )
    largest = max((abs(effect.points) for effect in one.published), default=None)
    margin = study.numbers["equivalence"] / 100
    if one.contrast.is_equivalence and contrasts.equivalence(numbers, margin, one.freedom) < LEVEL:
        verdict = "equivalent"
    elif adjusted < LEVEL:
        verdict = "better" if one.estimate > 0 else "worse"
    elif largest is not None and largest < 100 * detectable:
        verdict = "cannot tell"
    else:
        verdict = "undecided"
    return Answer(one, adjusted, detectable, verdict)
