"""The primary contrasts of the evidence: what was planned, what was found, and the answers.

The plans are the files of the studies. What was found is in the results, which
`python -m train.compare --study=... --json=docs/evidence/results/NAME.json` writes.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from effects import Effect, largest, published

from train.series.contrasts import Contrast, equivalence, holm, minimal_detectable

FOLDER = Path(__file__).parent
# Differences with a smaller corrected p-value are told.
LEVEL = 0.05
# What a sentence may name in the place of a question, beside a single study.
PARTS: Mapping[str, Sequence[str]] = {
    "tail of names and features": ("tail_countries", "tail_regions", "tail_organs"),
    "noise of features": (
        "noise_gaussian_20",
        "noise_gaussian_40",
        "noise_organs_20",
        "noise_organs_40",
    ),
    "noise of photographs": ("noise_tiny_imagenet_20", "noise_tiny_imagenet_40"),
    "average of names": ("average_countries_2", "average_countries_5", "average_countries_10"),
}
QUESTIONS: Mapping[str, Sequence[str]] = {
    "tail": ("tail_countries", "tail_regions", "tail_tiny_imagenet", "tail_organs"),
    "noise": (*PARTS["noise of features"], *PARTS["noise of photographs"]),
    "average": (*PARTS["average of names"], "average_tiny_imagenet_5"),
    "epsilon": ("epsilon_regions",),
    "samples": ("samples_countries",),
}
# The studies of `fine_tuned.md`, each with a correction of its own.
FINE_TUNED = ("fine_tuned_tail", "fine_tuned_noise")


@dataclass(frozen=True)
class Planned:
    """A primary contrast, as the file of its study has it.

    Attributes:
        study: the name of the study.
        name: that of the contrast.
        margin: within what an equivalence was planned, a share; None if none was.
        degrees_of_freedom: of Student's t: the seeds less one.
    """

    study: str
    name: str
    margin: float | None
    degrees_of_freedom: int


@dataclass(frozen=True)
class Answer:
    """A primary contrast with what was found.

    Attributes:
        planned: the contrast.
        found: its numbers.
        adjusted: the p-value of the difference, corrected for all primary contrasts of all studies;
            in the studies of `fine_tuned.md`, for those of the study.
        detectable: the true difference, a share, that would be found with a probability of 80 % if
            the correction were that of Bonferroni.
    """

    planned: Planned
    found: Contrast
    adjusted: float
    detectable: float

    @property
    def study(self) -> str:
        """The name of its study."""
        return self.planned.study

    @property
    def equivalence(self) -> float | None:
        """The p-value of the equivalence; None if none was planned."""
        if self.planned.margin is None:
            return None
        return equivalence(self.found, self.planned.margin, self.planned.degrees_of_freedom)

    @property
    def verdict(self) -> str:
        """The answer in a word, by the rules of the design."""
        if self.equivalence is not None and self.equivalence < LEVEL:
            return "equivalent"
        if self.adjusted >= LEVEL:
            return "cannot tell" if self._is_blind else "undecided"
        return "better" if self.found.estimate > 0 else "worse"

    @property
    def published(self) -> tuple[Effect, ...]:
        """The effects that the thesis published for it."""
        return published(self.study, self.planned.name)

    @property
    def _is_blind(self) -> bool:
        """Whether even the largest published effect would hardly have been found."""
        return bool(self.published) and abs(largest(self.published)) < 100 * self.detectable

    @property
    def decided(self) -> bool:
        """Whether the answer says which of two is better."""
        return self.verdict in ("better", "worse")


@cache
def study_file(study: str) -> dict[str, Any]:
    """The file of a study."""
    return tomllib.loads(_file(study, "studies", "toml").read_text())


@cache
def results(study: str) -> dict[str, Any]:
    """The results of a study."""
    found: dict[str, Any] = json.loads(_file(study, "results", "json").read_text())
    return found


def _file(study: str, folder: str, ending: str) -> Path:
    if study in FINE_TUNED:
        return FOLDER / "fine_tuned" / f"{study.removeprefix('fine_tuned_')}.{ending}"
    return FOLDER / folder / f"{study}.{ending}"


@cache
def primary() -> list[Planned]:
    """All primary contrasts of all studies, in the order of the questions."""
    return _planned([study for studies in QUESTIONS.values() for study in studies])


def _planned(studies: Sequence[str]) -> list[Planned]:
    """The primary contrasts of these studies."""
    return [
        Planned(
            study,
            contrast["name"],
            contrast["equivalence"] / 100 if "equivalence" in contrast else None,
            len(content["seeds"]) - 1,
        )
        for study in studies
        for content in [study_file(study)]
        for contrast in content["contrasts"]
        if contrast["primary"]
    ]


@cache
def answers() -> list[Answer]:
    """The answers to all primary contrasts, in the order of the questions."""
    return _answered(primary(), [_numbers(planned) for planned in primary()])


@cache
def fine_tuned(study: str) -> list[Answer]:
    """The answers to the primary contrasts of a study of `fine_tuned.md`."""
    planned = _planned([study])
    return _answered(planned, [_numbers(one) for one in planned])


def _numbers(planned: Planned) -> Contrast:
    return Contrast(**result(planned)["numbers"])


def studies_of(question: str) -> Sequence[str]:
    """The studies of a question, or of a part of one, which may be a single study.

    Raises:
        ValueError: there is no such question or part.
    """
    single = {study: (study,) for studies in QUESTIONS.values() for study in studies}
    known = {**QUESTIONS, **PARTS, **single}
    if question not in known:
        raise ValueError(f"no question is {question!r}; it may be one of {list(known)}")
    return known[question]


def of_question(question: str) -> list[Answer]:
    """The answers of all studies of a question, or of a part of one."""
    studies = studies_of(question)
    return [answer for answer in answers() if answer.study in studies]


def of_contrast(question: str, contrast: str) -> list[Answer]:
    """The answers to a primary contrast, by study.

    Raises:
        ValueError: no study of the question has it.
    """
    found = [answer for answer in of_question(question) if answer.planned.name == contrast]
    if not found:
        raise ValueError(f"no study of {question!r} has the primary contrast {contrast!r}")
    return found


def answered(found: Sequence[Contrast]) -> list[Answer]:
    """The answers of these numbers of all primary contrasts."""
    return _answered(primary(), found)


def _answered(contrasts: Sequence[Planned], found: Sequence[Contrast]) -> list[Answer]:
    """The answers of these numbers of contrasts that are corrected together."""
    adjusted = holm([one.p_value for one in found])
    return [
        Answer(
            planned,
            one,
            p_value,
            detectable(one.standard_error, planned.degrees_of_freedom, len(found)),
        )
        for planned, one, p_value in zip(contrasts, found, adjusted, strict=True)
    ]


def detectable(
    standard_error: float, degrees_of_freedom: float, num_tests: int | None = None
) -> float:
    """The true difference that would be found with a probability of 80 % after a correction.

    Args:
        standard_error: that of the difference.
        degrees_of_freedom: of Student's t.
        num_tests: the number of tests for which Bonferroni corrects; None is the number of primary
            contrasts of all studies.
    """
    level = LEVEL / (len(primary()) if num_tests is None else num_tests)
    return minimal_detectable(standard_error, degrees_of_freedom, level=level)


@cache
def secondary() -> list[tuple[str, str, Contrast]]:
    """The other contrasts: the study, the name and the numbers of each."""
    return [
        (study, contrast["name"], Contrast(**contrast["numbers"]))
        for studies in QUESTIONS.values()
        for study in studies
        for contrast in results(study)["contrasts"]
        if not contrast["primary"]
    ]


def result(planned: Planned) -> Mapping[str, Any]:
    """A contrast as the results have it."""
    contrasts: Sequence[Mapping[str, Any]] = results(planned.study)["contrasts"]
    (found,) = (one for one in contrasts if one["name"] == planned.name)
    return found
