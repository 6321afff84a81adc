"""The primary contrasts of the second edition: what was planned, what was found, and the answers.

The plans are the files of the studies. What was found is in the results, which
`python -m train.compare --study=... --json=docs/evidence/results/NAME.json` writes.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from train.series.contrasts import holm, minimal_detectable

FOLDER = Path(__file__).parent
# Differences with a smaller corrected p-value are told.
LEVEL = 0.05
QUESTIONS: Mapping[str, Sequence[str]] = {
    "tail": ("tail_countries", "tail_regions", "tail_tiny_imagenet", "tail_organs"),
    "noise": (
        "noise_gaussian_20",
        "noise_gaussian_40",
        "noise_organs_20",
        "noise_organs_40",
        "noise_tiny_imagenet_20",
        "noise_tiny_imagenet_40",
    ),
    "average": (
        "average_countries_2",
        "average_countries_5",
        "average_countries_10",
        "average_tiny_imagenet_5",
    ),
    "epsilon": ("epsilon_regions",),
    "samples": ("samples_countries",),
}


@dataclass(frozen=True)
class Answer:
    """A primary contrast.

    Attributes:
        study: the name of its study.
        planned: as the file of the study has it.
        found: as the results have it; None while the study has runs to go.
        adjusted: the p-value of the difference, corrected for all primary contrasts of all studies.
            Contrasts without results count with a p-value of 1.
        detectable: the true difference, a fraction, that would be found with a probability of 80 %
            if the correction were that of Bonferroni; None while the study has runs to go.
    """

    study: str
    planned: Mapping[str, Any]
    found: Mapping[str, Any] | None
    adjusted: float
    detectable: float | None

    @property
    def equivalence(self) -> float | None:
        """The p-value of the equivalence; None if none was planned, or without results."""
        return None if self.found is None else self.found["p_value_equivalence"]

    @property
    def verdict(self) -> str:
        """The answer in a word, by the rules of the design."""
        if self.found is None:
            return "open"
        if self.equivalence is not None and self.equivalence < LEVEL:
            return "equivalent"
        if self.adjusted >= LEVEL:
            return "undecided"
        return "better" if self.found["numbers"]["estimate"] > 0 else "worse"


@cache
def planned(study: str) -> dict[str, Any]:
    """The file of a study."""
    return tomllib.loads((FOLDER / "studies" / f"{study}.toml").read_text())


@cache
def results(study: str) -> dict[str, Any] | None:
    """The results of a study; None while it has runs to go."""
    path = FOLDER / "results" / f"{study}.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return None if found is None or found["runs_to_go"] else found


@cache
def answers() -> list[Answer]:
    """All primary contrasts of all studies, in the order of the questions."""
    contrasts = [
        (study, contrast)
        for studies in QUESTIONS.values()
        for study in studies
        for contrast in planned(study)["contrasts"]
        if contrast["primary"]
    ]
    found = [_found(study, contrast["name"]) for study, contrast in contrasts]
    adjusted = holm([1.0 if one is None else one["numbers"]["p_value"] for one in found])
    return [
        Answer(study, contrast, one, p_value, _detectable(study, one, LEVEL / len(contrasts)))
        for (study, contrast), one, p_value in zip(contrasts, found, adjusted, strict=True)
    ]


@cache
def secondary() -> list[tuple[str, Mapping[str, Any]]]:
    """The other contrasts of the studies that have ended, each with its study."""
    return [
        (study, contrast)
        for studies in QUESTIONS.values()
        for study in studies
        if (of_study := results(study)) is not None
        for contrast in of_study["contrasts"]
        if not contrast["primary"]
    ]


def _detectable(study: str, found: Mapping[str, Any] | None, level: float) -> float | None:
    if found is None:
        return None
    degrees_of_freedom = len(planned(study)["seeds"]) - 1
    return minimal_detectable(found["numbers"]["standard_error"], degrees_of_freedom, level=level)


def _found(study: str, name: str) -> Mapping[str, Any] | None:
    of_study = results(study)
    if of_study is None:
        return None
    (found,) = (one for one in of_study["contrasts"] if one["name"] == name)
    return found


@dataclass(frozen=True)
class Claim:
    """A claim of the thesis, as `claims.toml` has it.

    Attributes:
        claim: the claim in words.
        source: where it is.
        question: the question whose studies test it; empty for one that nothing tests.
        contrast: the name of the primary contrast that does.
        expected: the answer that it expects of that.
        untested: why nothing tests it.
    """

    claim: str
    source: str
    question: str = ""
    contrast: str = ""
    expected: str = ""
    untested: str = ""

    @property
    def answers(self) -> list[Answer]:
        """Those of its contrast, by study."""
        wanted = QUESTIONS.get(self.question, ())
        return [
            answer
            for answer in answers()
            if answer.study in wanted and answer.planned["name"] == self.contrast
        ]

    @property
    def verdict(self) -> str:
        """Whether the claim is reproduced, by the rules of the design."""
        if self.untested:
            return "not tested"
        verdicts = Counter(answer.verdict for answer in self.answers)
        if verdicts["open"]:
            return "open"
        against = sum(verdicts[verdict] for verdict in _AGAINST[self.expected])
        half = verdicts.total() / 2
        reversed_ = sum(verdicts[verdict] for verdict in _REVERSED[self.expected])
        if verdicts[self.expected] > half and not reversed_:
            return "reproduced"
        return "not reproduced" if against > half else "mixed"


# The answers that speak against a claim, and those that not a single study may have.
_AGAINST = {
    "better": ("worse", "equivalent"),
    "worse": ("better", "equivalent"),
    "equivalent": ("better", "worse"),
}
_REVERSED = {"better": ("worse",), "worse": ("better",), "equivalent": ("better", "worse")}


@cache
def claims() -> list[Claim]:
    """All claims, in the order of the file."""
    content = tomllib.loads((FOLDER / "claims.toml").read_text())
    return [Claim(**claim) for claim in content["claims"]]
