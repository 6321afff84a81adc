"""The tables of the evidence, in Markdown, from the results of the studies."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sensitivity
from answers import (
    LEVEL,
    QUESTIONS,
    Answer,
    answers,
    of_contrast,
    of_question,
    results,
    secondary,
)
from claims import Claim, claims
from markdown_tables import markdown_table
from texts import POINTS, from_to, number_text, p_value_text, scores, with_interval
from times import ratio, times

from train.series.contrasts import holm


def summary() -> str:
    """Every comparison, over all studies that have it."""
    rows = []
    for question in QUESTIONS:
        for name in dict.fromkeys(answer.planned.name for answer in of_question(question)):
            found = of_contrast(question, name)
            rows.append([question, name, counted(found), from_to(found)])
    return markdown_table(
        ["question", "difference", "answers", "points, smallest and largest"], rows
    )


def contrasts(question: str) -> str:
    """The primary contrasts of a question."""
    rows = [
        [
            answer.study,
            answer.planned.name,
            with_interval(answer.found),
            p_value_text(answer.adjusted),
            "" if answer.equivalence is None else p_value_text(answer.equivalence),
            f"{POINTS * answer.detectable:.2f}",
            answer.verdict,
        ]
        for answer in of_question(question)
    ]
    head = [
        "study",
        "difference",
        "points",
        "corrected p",
        "p of equivalence",
        "detectable",
        "answer",
    ]
    return markdown_table(head, rows)


def accuracies(question: str) -> str:
    """The accuracies of every loss, and what was selected for it."""
    rows = []
    for study in QUESTIONS[question]:
        found = results(study)
        for arm in found["arms"]:
            selected = ", ".join(
                f"{name.partition('.')[2]} {number_text(value)}"
                for name, value in sorted(arm["selected"].items())
            )
            accuracy = _mean(scores(found, arm))
            rows.append([study, arm["name"], accuracy, _best_possible(found, arm), selected])
    head = ["study", "loss and head", "test accuracy", "best possible", "selected"]
    return markdown_table(head, rows)


def secondary_contrasts() -> str:
    """The secondary contrasts of all studies."""
    rows = [
        [
            study,
            name,
            with_interval(found),
            p_value_text(found.p_value),
        ]
        for study, name, found in secondary()
    ]
    return markdown_table(["study", "difference", "points", "p, not corrected"], rows)


def times_to_an_accuracy() -> str:
    """How long the noised and the expected hinge train until they reach an accuracy."""
    rows = [
        [
            study,
            f"{POINTS * by_kind['noised'].accuracy:.2f}",
            *(f"{POINTS * by_kind[kind].reached:.0f} %" for kind in by_kind),
            *(f"{by_kind[kind].epochs:g}" for kind in by_kind),
            f"{ratio(by_kind):.2f}",
        ]
        for study, by_kind in times().items()
    ]
    head = [
        "study",
        "accuracy",
        "noised: runs that reach it",
        "expected",
        "noised: epochs",
        "expected",
        "time, expected / noised",
    ]
    return markdown_table(head, rows)


def other_answers() -> str:
    """The contrasts that have another answer with the standard errors of `sensitivity`."""
    both = list(zip(answers(), sensitivity.answers(), strict=True))
    rows = [
        [
            planned.study,
            planned.planned.name,
            planned.verdict,
            other.verdict,
            with_interval(other.found),
            p_value_text(other.adjusted),
        ]
        for planned, other in both
        if planned.verdict != other.verdict
    ]
    ratios = [other.found.standard_error / planned.found.standard_error for planned, other in both]
    told = (
        f"\nThese standard errors are {min(ratios):.2f} to {max(ratios):.2f} times those of the "
        f"bootstrap. Of {len(ratios)} primary contrasts, {len(rows)} have another answer"
    )
    head = ["study", "difference", "answer of the design", "answer here", "points", "corrected p"]
    return f"{told}:\n{markdown_table(head, rows)}"


def corrected_equivalences() -> str:
    """The equivalences with p-values that are corrected for all that were planned."""
    wanted = [
        (answer, p_value) for answer in answers() if (p_value := answer.equivalence) is not None
    ]
    adjusted = holm([p_value for _, p_value in wanted])
    rows = [
        [
            answer.study,
            answer.planned.name,
            p_value_text(p_value),
            p_value_text(corrected),
            "yes" if corrected < LEVEL else "no",
        ]
        for (answer, p_value), corrected in zip(wanted, adjusted, strict=True)
        if p_value < LEVEL
    ]
    told = f"\nCorrected for all {len(wanted)} equivalences that were planned, by Holm's method:\n"
    head = ["study", "difference", "p of equivalence", "corrected p", "still equivalent"]
    return f"{told}{markdown_table(head, rows)}"


def claims_of_the_thesis() -> str:
    """The claims of the thesis, with what was found."""
    rows = [
        [
            claim.claim,
            claim.source,
            claim.verdict,
            claim.untested or _why(claim),
        ]
        for claim in claims()
    ]
    return markdown_table(["claim", "source", "here", "why"], rows)


def _why(claim: Claim) -> str:
    found = f"expected {claim.expected}: {counted(claim.answers)}; {from_to(claim.answers)} points"
    return f"{found}. {claim.remark}" if claim.remark else found


def counted(found: Sequence[Answer]) -> str:
    """How many answers there are of each kind, in words."""
    counts = Counter(answer.verdict for answer in found)
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))


def _best_possible(found: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    """The accuracy of the best classifier; empty where it is not known."""
    name = "bayes_balanced_test" if found["split"] == "balanced_test" else "bayes"
    best = next((run[name] for run in arm["runs"] if name in run), None)
    return "" if best is None else f"{POINTS * best[found['select_by']]:.2f}"


def _mean(accuracies_by_seed: Sequence[float]) -> str:
    """The mean over seeds and the deviation of one run, in points."""
    in_points = POINTS * np.asarray(accuracies_by_seed)
    return f"{in_points.mean():.2f} (sd {in_points.std(ddof=1):.2f})"
