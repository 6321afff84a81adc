"""The tables of the comparison of losses, computed again from the files of its results."""

import functools
from collections.abc import Callable
from typing import Any

from tests.reference import _studies as studies
from tests.reference import _study_answers as answers
from tests.reference import _study_text as text
from tests.reference import _study_times as times
from tests.reference._study_statistics import LEVEL


def summary() -> str:
    """Each primary contrast of each question, over all of its studies."""
    contrasts = {
        (question, contrast.name): None
        for question, names in studies.QUESTIONS.items()
        for study in names
        for contrast in studies.contrasts(study)
        if contrast.primary
    }
    return text.table(
        ["question", "difference", "answers", "points, smallest and largest"],
        [
            [
                question,
                name,
                text.counted(one.verdict for one in answers.answers_to(question, name)),
                spread(question, name),
            ]
            for question, name in contrasts
        ],
    )


def spread(question: str, name: str) -> str:
    """The smallest and the largest difference of the studies."""
    found = [one.difference.points for one in answers.answers_to(question, name)]
    return text.extremes(found, "+.2f")


def contrasts_of(question: str) -> str:
    """The primary contrasts of the studies."""
    return text.table(
        [
            "study",
            "difference",
            "points",
            "corrected p",
            "p of equivalence",
            "detectable",
            "answer",
        ],
        [
            [
                answer.contrast.study,
                answer.contrast.name,
                text.with_interval(answer.difference),
                text.probability(answer.corrected),
                text.probability(answer.difference.equivalence),
                f"{answers.detectable(answer.difference):.2f}",
                answer.verdict,
            ]
            for answer in answers.answers()
            if answer.contrast.study in studies.QUESTIONS[question]
        ],
    )


def accuracies_of(question: str) -> str:
    """The accuracy and the selected parameters of each loss."""
    rows = []
    for study in studies.QUESTIONS[question]:
        for arm in studies.results(study)["arms"]:
            metric = studies.results(study)["select_by"]
            found = answers.stored_accuracies(study, arm["name"], metric)
            rows.append(
                [
                    study,
                    arm["name"],
                    f"{found.mean():.2f} (sd {found.std(ddof=1):.2f})",
                    _best_possible(study, arm["runs"][0]),
                    _selected(arm["selected"]),
                ]
            )
    return text.table(
        ["study", "loss and head", "test accuracy", "best possible", "selected"], rows
    )


def _best_possible(study: str, run: dict[str, Any]) -> str:
    """The accuracy of the best classifier on the test set of the study, if it is known."""
    found = studies.results(study)
    name = "bayes" if found["split"] == "test" else f"bayes_{found['split']}"
    return f"{100 * run[name][found['select_by']]:.2f}" if name in run else ""


def _selected(parameters: dict[str, Any]) -> str:
    """The parameters by the names of their fields, which are printed without their group."""
    return ", ".join(
        f"{name.split('.')[1]} {f'{value:g}' if isinstance(value, float) else value}"
        for name, value in sorted(parameters.items())
    )


def secondary() -> str:
    """The secondary contrasts of the studies."""
    found = [
        answers.difference(contrast)
        for study in studies.STUDIES
        for contrast in studies.contrasts(study)
        if not contrast.primary
    ]
    return text.table(
        ["study", "difference", "points", "p, not corrected"],
        [
            [
                one.contrast.study,
                one.contrast.name,
                text.with_interval(one),
                text.probability(one.p_value),
            ]
            for one in found
        ],
    )


def training_times() -> str:
    """How long the noised and the expected hinge train until they reach the same accuracy."""
    found = [
        (study, times.comparison(study))
        for study in studies.STUDIES
        if times.has_both_hinges(study)
    ]
    return text.table(
        [
            "study",
            "accuracy",
            "noised: runs that reach it",
            "expected",
            "noised: epochs",
            "expected",
            "time, expected / noised",
        ],
        [
            [
                study,
                f"{one.accuracy:.2f}",
                f"{100 * one.noised.share:.0f} %",
                f"{100 * one.expected.share:.0f} %",
                f"{one.noised.epochs:g}",
                f"{one.expected.epochs:g}",
                f"{one.ratio:.2f}",
            ]
            for study, one in found
        ],
    )


def other_answers() -> str:
    """The answers that the analysis of variance changes."""
    other = answers.answers(answers.smaller_standard_error)
    ratios, rows = [], []
    for design, here in zip(answers.answers(), other, strict=True):
        ratios.append(here.difference.error / design.difference.error)
        if here.verdict != design.verdict:
            rows.append(
                [
                    design.contrast.study,
                    design.contrast.name,
                    design.verdict,
                    here.verdict,
                    text.with_interval(here.difference),
                    text.probability(here.corrected),
                ]
            )
    return (
        f"These standard errors are {text.extremes(ratios, '.2f')} times those of the bootstrap. "
        f"Of {len(ratios)} primary contrasts, {len(rows)} have another answer:\n\n"
    ) + text.table(
        ["study", "difference", "answer of the design", "answer here", "points", "corrected p"],
        rows,
    )


def corrected_equivalences() -> str:
    """The equivalences that the design found, after Holm's correction."""
    planned = [
        (one, corrected)
        for one in answers.answers()
        if (corrected := one.corrected_equivalence) is not None
    ]
    rows = [
        [
            one.contrast.study,
            one.contrast.name,
            text.probability(one.difference.equivalence),
            text.probability(corrected),
            "yes" if corrected < LEVEL else "no",
        ]
        for one, corrected in planned
        if one.verdict == "equivalent"
    ]
    return (
        f"Corrected for all {len(planned)} equivalences that were planned, by Holm's method:\n\n"
    ) + text.table(
        ["study", "difference", "p of equivalence", "corrected p", "still equivalent"], rows
    )


def claims() -> str:
    """The claims of the thesis and what became of them."""
    rows = []
    for claim in studies.claims():
        if "untested" in claim:
            verdict, reason = "not tested", claim["untested"]
        else:
            found = answers.answers_to(claim["question"], claim["contrast"])
            verdicts = [one.verdict for one in found]
            verdict = answers.verdict_of_claim(claim["expected"], verdicts)
            reason = f"expected {claim['expected']}: {text.counted(verdicts)}"
            reason += f"; {spread(claim['question'], claim['contrast'])} points"
            if "remark" in claim:
                reason += f". {claim['remark']}"
        rows.append([claim["claim"], claim["source"], verdict, reason])
    return text.table(["claim", "source", "here", "why"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "summary": summary,
    "secondary": secondary,
    "times": training_times,
    "other answers": other_answers,
    "corrected equivalences": corrected_equivalences,
    "claims": claims,
    **{
        f"{question} {kind}": functools.partial(made, question)
        for question in studies.QUESTIONS
        for kind, made in (("contrasts", contrasts_of), ("accuracies", accuracies_of))
    },
}
