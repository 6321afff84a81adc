"""The primary contrasts of settings whose runs are complete, by the rules of the design.

Each side is a loss with the head that validation prefers, in both searches. The standard error has
the seeds, the test examples, and the luck of the search.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from answers import LEVEL
from better_heads import difference_of_accuracies, standard_error
from effects import Effect, effect

from pretrained.arms import Chosen
from pretrained.design import HEADS, Contrast, Rule, Setting, Study
from train.series import contrasts

# The loss that all others are compared with.
BASELINE = "cross-entropy"


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

    @property
    def published(self) -> tuple[Effect, ...]:
        """The effects that the thesis published for it."""
        return self.difference.published

    @property
    def found(self) -> contrasts.Contrast:
        """Its numbers."""
        return self.difference.found


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


@dataclass(frozen=True)
class Secondary:
    """A loss with a head, without an answer: differences in shares, with standard errors.

    The errors are of seeds and test examples, of only the seeds for top-1 accuracy; the luck of the
    search is not in them.

    Attributes:
        setting: the setting.
        loss: the name of the loss.
        head: linear or cosine.
        same_head: to cross-entropy with this head; None for cross-entropy itself.
        better_head: to cross-entropy with its better head; None for this one itself.
        top_1: to cross-entropy with this head, in top-1 accuracy; None if it was not measured.
        wrong_labels: what selection by wrong validation labels changes; None without wrong labels.
    """

    setting: Setting
    loss: str
    head: str
    same_head: contrasts.Contrast | None
    better_head: contrasts.Contrast | None
    top_1: contrasts.Contrast | None
    wrong_labels: contrasts.Contrast | None


def secondary(study: Study, one: Finished) -> list[Secondary]:
    """All losses of a setting with each head, beside cross-entropy."""
    macro = one.setting.question == "tail"

    def of(loss: str, head: str, rule: Rule = "correct") -> list[Chosen]:
        return [arm for arm in one.chosen if (arm.loss, arm.head, arm.rule) == (loss, head, rule)]

    def difference(first: Sequence[Chosen], second: Sequence[Chosen]) -> contrasts.Contrast:
        values = hits(first) - hits(second)
        error = standard_error(values, one.labels, macro=macro)
        return contrasts.with_error(float(values.mean()), error, len(values) - 1)

    def of_top_1(first: Sequence[Chosen], second: Sequence[Chosen]) -> contrasts.Contrast:
        top_1 = [
            np.mean([arm.accuracies["top_1"] for arm in arms], axis=0) for arms in (first, second)
        ]
        return difference_of_accuracies(np.subtract(*top_1))

    best = with_better_head(one.chosen, BASELINE)
    found = []
    for loss in study.losses_of(one.setting):
        for head in HEADS:
            own, plain = of(loss.name, head), of(BASELINE, head)
            is_baseline = loss.name == BASELINE
            is_best = is_baseline and {arm.head for arm in best} == {head}
            found.append(
                Secondary(
                    one.setting,
                    loss.name,
                    head,
                    None if is_baseline else difference(own, plain),
                    None if is_best else difference(own, best),
                    None
                    if is_baseline or "top_1" not in own[0].accuracies
                    else of_top_1(own, plain),
                    difference(of(loss.name, head, "wrong"), own) if one.setting.wrong else None,
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
