"""Fills the tables of second_edition.md from the results: `python docs/evidence/second_edition.py`.

The results are what `python -m train.compare --study=... --json=docs/evidence/results/NAME.json`
writes. What is between the comments `<!-- NAME -->` and `<!-- end -->` is replaced by the table of
that name, and the figures are drawn again.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from train.series.contrasts import holm
from train.workdir import figure_style

PAGE = Path(__file__).with_suffix(".md")
STUDIES = PAGE.parent / "studies"
RESULTS = PAGE.parent / "results"
FIGURES = PAGE.parent.parent / "figures"
PLACE = re.compile(r"(?<=<!-- )(?!end )(?P<name>[\w ]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
# Differences with a smaller corrected p-value are told.
LEVEL = 0.05
POINTS = 100.0
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
        adjusted: the p-value, corrected for all primary contrasts of all studies. Contrasts
            without results count with a p-value of 1.
    """

    study: str
    planned: Mapping[str, Any]
    found: Mapping[str, Any] | None
    adjusted: float

    @property
    def is_equivalence(self) -> bool:
        """Whether the claim is that there is no difference that matters."""
        return "equivalence" in self.planned

    @property
    def verdict(self) -> str:
        """The answer in a word, by the rules of the design."""
        if self.found is None:
            return "open"
        if self.adjusted >= LEVEL:
            return "undecided"
        if self.is_equivalence:
            return "equivalent"
        return "better" if self.found["numbers"]["estimate"] > 0 else "worse"


@cache
def planned(study: str) -> dict[str, Any]:
    """The file of a study."""
    return tomllib.loads((STUDIES / f"{study}.toml").read_text())


@cache
def results(study: str) -> dict[str, Any] | None:
    """The results of a study; None while it has runs to go."""
    path = RESULTS / f"{study}.json"
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
    adjusted = holm([_p_value(one) for one in found])
    return [
        Answer(study, contrast, one, p_value)
        for (study, contrast), one, p_value in zip(contrasts, found, adjusted, strict=True)
    ]


def _found(study: str, name: str) -> Mapping[str, Any] | None:
    of_study = results(study)
    if of_study is None:
        return None
    (found,) = (one for one in of_study["contrasts"] if one["name"] == name)
    return found


def _p_value(found: Mapping[str, Any] | None) -> float:
    if found is None:
        return 1.0
    if found["equivalence_margin"] is not None:
        return float(found["p_value_equivalence"])
    return float(found["numbers"]["p_value"])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "\nNo study of this question has ended.\n\n"
    return "\n" + "".join(map(_row, (head, ["---"] * len(head), *rows))) + "\n"


def _p_value_text(value: float) -> str:
    return "below 0.0001" if value < 1e-4 else f"{value:.4f}"


def contrast_table(question: str) -> str:
    """The primary contrasts of a question."""
    rows = []
    for answer in answers():
        if answer.study not in QUESTIONS[question] or answer.found is None:
            continue
        numbers = answer.found["numbers"]
        rows.append(
            [
                answer.study,
                answer.planned["name"],
                f"{POINTS * numbers['estimate']:+.2f} ± {POINTS * numbers['half_width']:.2f}",
                _p_value_text(answer.adjusted),
                f"{POINTS * numbers['minimal_detectable']:.2f}",
                answer.verdict,
            ]
        )
    head = ["study", "difference", "points", "corrected p-value", "detectable", "answer"]
    return _table(head, rows)


def accuracy_table(question: str) -> str:
    """The accuracies of every loss that has ended, and what was selected for it."""
    rows = []
    for study in QUESTIONS[question]:
        if (found := results(study)) is None:
            continue
        for arm in found["arms"]:
            scores = [
                run["metrics"][found["select_by"]] for run in arm["runs"] if not run["diverged"]
            ]
            selected = ", ".join(
                f"{name.partition('.')[2]} {_number(value)}"
                for name, value in sorted(arm["selected"].items())
            )
            rows.append([study, arm["name"], _mean(scores), selected])
    head = ["study", "loss and head", "test accuracy", "selected"]
    return _table(head, rows)


def progress_table() -> str:
    """How far each study is."""
    rows = []
    for question, studies in QUESTIONS.items():
        ended = [study for study in studies if results(study) is not None]
        rows.append([question, str(len(studies)), ", ".join(ended) or "none"])
    return _table(["question", "studies", "ended"], rows)


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _mean(scores: Sequence[float]) -> str:
    """The mean over seeds and the deviation of one run, in points."""
    in_points = POINTS * np.asarray(scores)
    return f"{in_points.mean():.2f} (sd {in_points.std(ddof=1):.2f})"


def tables() -> dict[str, str]:
    """All tables of the page by their names."""
    found = {"progress": progress_table()}
    for question in QUESTIONS:
        found[f"{question} contrasts"] = contrast_table(question)
        found[f"{question} accuracies"] = accuracy_table(question)
    return found


def filled(page: str) -> str:
    """The page with the tables of the numbers that are there now."""
    made = tables()
    return PLACE.sub(lambda place: f"{place['name']}{place[2]}{made[place['name']]}", page)


def draw(question: str) -> bytes | None:
    """A figure of the differences of a question with their intervals; None without results."""
    shown = [
        (answer, answer.found["numbers"])
        for answer in answers()
        if answer.study in QUESTIONS[question] and answer.found is not None
    ]
    if not shown:
        return None
    figure = figure_style.new_figure(8.0, 1.0 + 0.3 * len(shown))
    axes = figure.add_subplot()
    studies = list(dict.fromkeys(answer.study for answer, _ in shown))
    for place, (answer, numbers) in enumerate(shown):
        axes.errorbar(
            POINTS * numbers["estimate"],
            -place,
            xerr=POINTS * numbers["half_width"],
            linestyle="none",
            **figure_style.point_look(studies.index(answer.study)),
        )
    axes.axvline(0.0, color=figure_style.REFERENCE_COLOR, linewidth=1.0)
    labels = [f"{answer.study}: {answer.planned['name']}" for answer, _ in shown]
    axes.set_yticks([-place for place in range(len(shown))], labels, fontsize=8)
    figure_style.finish(
        axes, x_label="difference in points of accuracy, with its 95 % interval", y_label=""
    )
    return figure_style.encode(figure, ".png")


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
    for name in QUESTIONS:
        if (image := draw(name)) is not None:
            (FIGURES / f"evidence_{name}.png").write_bytes(image)
