"""The answers to the questions of the comparison of losses, by the rules of its design."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from tests.reference import _studies as studies
from tests.reference import _study_effects as effects
from tests.reference import _study_statistics as statistics

StandardError = Callable[[studies.Contrast], float]


@dataclass(frozen=True)
class Difference:
    """What one contrast found, in points. A p-value is not corrected."""

    contrast: studies.Contrast
    num_seeds: int
    points: float
    error: float

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval."""
        return statistics.half_width(self.error, self.num_seeds)

    @property
    def p_value(self) -> float:
        """The p-value of the difference."""
        return statistics.p_value(self.points, self.error, self.num_seeds)

    @property
    def equivalence(self) -> float | None:
        """The p-value of an equivalence, if one was planned."""
        margin = self.contrast.margin
        if margin is None:
            return None
        return statistics.equivalence_p_value(self.points, self.error, self.num_seeds, margin)


@dataclass(frozen=True)
class Answer:
    """A primary contrast: its difference, its corrected p-values, and the verdict."""

    contrast: studies.Contrast
    difference: Difference
    corrected: float
    corrected_equivalence: float | None
    num_tests: int

    @property
    def verdict(self) -> str:
        """The word for the answer; an equivalence that is found comes first."""
        found = self.difference
        if found.equivalence is not None and found.equivalence < statistics.LEVEL:
            return "equivalent"
        if self.corrected < statistics.LEVEL:
            return "better" if found.points > 0 else "worse"
        published = [abs(one) for one in self.published]
        # All primary contrasts are corrected together.
        found_by = found.error * statistics.detectable_errors(found.num_seeds, self.num_tests)
        return "cannot tell" if published and max(published) < found_by else "undecided"

    @property
    def published(self) -> list[float]:
        """The published effects, in points."""
        known = effects.effects().get((self.contrast.study, self.contrast.name), [])
        return [float(one) for one in known]


def stored_standard_error(contrast: studies.Contrast) -> float:
    """That of the design, which a bootstrap of 10,000 resamples found once."""
    return studies.stored(contrast)["numbers"]["standard_error"]


def expected_standard_error(contrast: studies.Contrast) -> float:
    """That of the design without the randomness of the resamples."""
    return statistics.bootstrap_standard_error(
        studies.differences(contrast),
        studies.labels(contrast.study),
        macro=studies.is_macro(contrast.metric),
    )


@functools.cache
def smaller_standard_error(contrast: studies.Contrast) -> float:
    """That of the analysis of variance."""
    return statistics.analysis_of_variance_standard_error(
        studies.differences(contrast),
        studies.labels(contrast.study),
        macro=studies.is_macro(contrast.metric),
    )


@functools.cache
def difference(
    contrast: studies.Contrast, standard_error: StandardError = stored_standard_error
) -> Difference:
    """The difference of a contrast.

    The estimate is the stored one. It may be in the middle between two numbers of two digits, and
    then its rounding errors decide which of them is printed.
    """
    return Difference(
        contrast,
        len(studies.planned(contrast.study)["seeds"]),
        100 * studies.stored(contrast)["numbers"]["estimate"],
        100 * standard_error(contrast),
    )


@functools.cache
def answers(standard_error: StandardError = stored_standard_error) -> tuple[Answer, ...]:
    """Those of all primary contrasts of all studies."""
    return _corrected_together(studies.STUDIES, standard_error)


@functools.cache
def fine_tuned(study: str) -> tuple[Answer, ...]:
    """Those of the primary contrasts of a study of fine-tuning."""
    return _corrected_together((study,), stored_standard_error)


def _corrected_together(names: Iterable[str], standard_error: StandardError) -> tuple[Answer, ...]:
    contrasts = [
        contrast for study in names for contrast in studies.contrasts(study) if contrast.primary
    ]
    found = [difference(contrast, standard_error) for contrast in contrasts]
    corrected = statistics.holm([one.p_value for one in found])
    equivalences = {one.contrast: one.equivalence for one in found if one.equivalence is not None}
    corrected_equivalences = dict(
        zip(equivalences, statistics.holm(list(equivalences.values())), strict=True)
    )
    return tuple(
        Answer(contrast, one, p_value, corrected_equivalences.get(contrast), len(found))
        for contrast, one, p_value in zip(contrasts, found, corrected, strict=True)
    )


def answers_to(question: str, name: str) -> list[Answer]:
    """The answers that the studies of a question, or of a part of it, give to one contrast."""
    asked = studies.studies_of(question)
    found = [one for one in answers() if one.contrast.study in asked and one.contrast.name == name]
    if not found:
        raise ValueError(f"no primary contrast of {question!r} is {name!r}")
    return found


def published_inside(given: Iterable[Answer]) -> str:
    """In how many of the intervals the largest published effect is, of those that have one."""
    known = [one for one in given if one.published]
    distances = [abs(max(one.published, key=abs) - one.difference.points) for one in known]
    widths = [one.difference.half_width for one in known]
    inside = sum(one <= width for one, width in zip(distances, widths, strict=True))
    return f"{inside} of {len(known)}"


def detectable(found: Difference) -> float:
    """The smallest effect, in points, that would be found after Bonferroni's correction."""
    return found.error * statistics.detectable_errors(found.num_seeds, len(answers()))


def accuracies(study: str, arm: str, metric: str) -> np.ndarray:
    """The accuracy of each seed in per cent, from the hits."""
    macro = studies.is_macro(metric)
    weights = statistics.example_weights(studies.labels(study), macro=macro)
    return 100 * studies.hits(study, arm, metric) @ weights


def stored_accuracies(study: str, arm: str, metric: str) -> np.ndarray:
    """The accuracy of each seed in per cent, as the program measured it in float32."""
    return np.array([100 * run["metrics"][metric] for run in studies.arm(study, arm)["runs"]])


# What speaks against a claim, by the answer that it expects, and what is the reverse of it.
AGAINST = {
    "better": {"worse", "equivalent"},
    "worse": {"better", "equivalent"},
    "equivalent": {"better", "worse"},
}
REVERSE = {"better": {"worse"}, "worse": {"better"}, "equivalent": {"better", "worse"}}


def verdict_of_claim(expected: str, verdicts: Iterable[str]) -> str:
    """Whether a claim is reproduced, by the verdicts of the studies of its question."""
    given = list(verdicts)
    if set(given) == {"cannot tell"}:
        return "cannot tell"
    found = ["undecided" if one == "cannot tell" else one for one in given]
    if 2 * found.count(expected) > len(found) and not REVERSE[expected] & set(found):
        return "reproduced"
    if 2 * sum(one in AGAINST[expected] for one in found) > len(found):
        return "not reproduced"
    return "undecided" if set(found) == {"undecided"} else "mixed"
