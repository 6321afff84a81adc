"""The full record of the evidence: all contrasts and all losses, as files with commas."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from answers import QUESTIONS, answers, results, secondary
from texts import POINTS, number_text, p_value_text, scores, with_interval


def contrasts() -> list[list[str]]:
    """The primary contrasts, then the secondary ones, below their columns."""
    head = [
        "study",
        "difference",
        "points",
        "p",
        "corrected p",
        "answer",
        "published",
        "detectable",
        "p of equivalence",
    ]
    primary = [
        [
            answer.study,
            answer.planned.name,
            with_interval(answer.found),
            p_value_text(answer.found.p_value),
            p_value_text(answer.adjusted),
            answer.verdict,
            ", ".join(effect.text for effect in answer.published),
            f"{POINTS * answer.detectable:.2f}",
            "" if answer.equivalence is None else p_value_text(answer.equivalence),
        ]
        for answer in answers()
    ]
    others = [
        [study, name, with_interval(found), p_value_text(found.p_value), "", "secondary", *[""] * 3]
        for study, name, found in secondary()
    ]
    return [head, *primary, *others]


def accuracies() -> list[list[str]]:
    """The test accuracies of every loss and what was selected for it, below their columns."""
    rows = [["study", "loss and head", "test accuracy", "deviation", "best possible", "selected"]]
    for studies in QUESTIONS.values():
        for study in studies:
            found = results(study)
            for arm in found["arms"]:
                selected = ", ".join(
                    f"{name.partition('.')[2]} {number_text(value)}"
                    for name, value in sorted(arm["selected"].items())
                )
                in_points = POINTS * np.asarray(scores(found, arm))
                accuracy = [f"{in_points.mean():.2f}", f"{in_points.std(ddof=1):.2f}"]
                rows.append([study, arm["name"], *accuracy, _best_possible(found, arm), selected])
    return rows


# By the name of the file.
RECORDS: Mapping[str, Callable[[], list[list[str]]]] = {
    "contrasts.csv": contrasts,
    "accuracies.csv": accuracies,
}


def csv_text(rows: Sequence[Sequence[str]]) -> str:
    """The text of a file with these rows."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def _best_possible(found: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    """The accuracy of the best classifier; empty if it is not known."""
    name = "bayes_balanced_test" if found["split"] == "balanced_test" else "bayes"
    best = next((run[name] for run in arm["runs"] if name in run), None)
    return "" if best is None else f"{POINTS * best[found['select_by']]:.2f}"
