"""Fills the tables of second_edition.md from the results: `python docs/evidence/second_edition.py`.

What is between the comments `<!-- NAME -->` and `<!-- end -->` is replaced by the table of that
name, and the figures are drawn again.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from answers import QUESTIONS, Answer, answers, claims, results, secondary

from train.workdir import figure_style

PAGE = Path(__file__).with_suffix(".md")
FIGURES = PAGE.parent.parent / "figures"
PLACE = re.compile(r"(?<=<!-- )(?!end )(?P<name>[\w ]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
POINTS = 100.0


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "\nNo study of this question has ended.\n\n"
    return "\n" + "".join(map(_row, (head, ["---"] * len(head), *rows))) + "\n"


def _with_interval(numbers: Mapping[str, float]) -> str:
    return f"{POINTS * numbers['estimate']:+.2f} ± {POINTS * numbers['half_width']:.2f}"


def _p_value_text(value: float) -> str:
    """With as many digits as the bootstrap has."""
    return "below 0.001" if value < 1e-3 else f"{value:.2g}"


def contrast_table(question: str) -> str:
    """The primary contrasts of a question."""
    rows = []
    for answer in answers():
        if answer.study not in QUESTIONS[question] or answer.found is None:
            continue
        rows.append(
            [
                answer.study,
                answer.planned["name"],
                _with_interval(answer.found["numbers"]),
                _p_value_text(answer.adjusted),
                "" if answer.equivalence is None else _p_value_text(answer.equivalence),
                f"{POINTS * (answer.detectable or 0.0):.2f}",
                answer.verdict,
            ]
        )
    head = [
        "study",
        "difference",
        "points",
        "corrected p",
        "p of equivalence",
        "detectable",
        "answer",
    ]
    figure = f"![The differences with their intervals](../figures/evidence_{question}.png)\n\n"
    return _table(head, rows) + (figure if rows else "")


def secondary_table() -> str:
    """The secondary contrasts of all studies that have ended."""
    rows = [
        [
            study,
            contrast["name"],
            _with_interval(contrast["numbers"]),
            _p_value_text(contrast["numbers"]["p_value"]),
        ]
        for study, contrast in secondary()
    ]
    return _table(["study", "difference", "points", "p, not corrected"], rows)


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


def summary_table() -> str:
    """Every comparison, over all studies that have it."""
    rows = []
    for question, studies in QUESTIONS.items():
        of_question = [answer for answer in answers() if answer.study in studies]
        for name in dict.fromkeys(answer.planned["name"] for answer in of_question):
            found = [answer for answer in of_question if answer.planned["name"] == name]
            rows.append([question, name, _counted(found), _from_to(found)])
    return _table(["question", "difference", "answers", "points, smallest and largest"], rows)


def claims_table() -> str:
    """The claims of the thesis, with what was found."""
    rows = [
        [
            claim.claim,
            claim.source,
            claim.verdict,
            claim.untested or f"expected {claim.expected}: {_counted(claim.answers)}",
        ]
        for claim in claims()
    ]
    return _table(["claim", "source", "here", "why"], rows)


def _counted(found: Sequence[Answer]) -> str:
    counts = Counter(answer.verdict for answer in found)
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))


def _from_to(found: Sequence[Answer]) -> str:
    """The smallest and the largest difference."""
    points = sorted(
        POINTS * answer.found["numbers"]["estimate"] for answer in found if answer.found is not None
    )
    return " to ".join(dict.fromkeys(f"{end:+.2f}" for end in (*points[:1], *points[-1:])))


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
    found = {
        "progress": progress_table(),
        "summary": summary_table(),
        "claims": claims_table(),
        "secondary": secondary_table(),
    }
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
    axes.set_ylim(0.5 - len(shown), 0.5)
    axes.set_yticks([-place for place in range(len(shown))], labels, fontsize=8)
    figure_style.finish(axes, x_label="points, with 95 % interval", y_label="")
    return figure_style.encode(figure, ".png")


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
    for name in QUESTIONS:
        if (image := draw(name)) is not None:
            (FIGURES / f"evidence_{name}.png").write_bytes(image)
