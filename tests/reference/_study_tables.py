"""The tables of the comparison of losses, computed again from the files of its results."""

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tests.reference import _studies as studies
from tests.reference import _study_answers as answers
from tests.reference import _study_claims as claims
from tests.reference import _study_effects as effects
from tests.reference import _study_pooling as pooling
from tests.reference import _study_text as text
from tests.reference import _study_times as times
from tests.reference._study_statistics import LEVEL, detectable_errors


def contrasts_of(question: str) -> str:
    """The primary contrasts, in a row of all studies of the question."""
    given = {
        (one.contrast.study, one.contrast.name): one
        for one in answers.answers()
        if one.contrast.study in studies.QUESTIONS[question]
    }
    rows: dict[str, list[str]] = {}
    for study in studies.QUESTIONS[question]:
        for contrast in studies.contrasts(study):
            if contrast.primary:
                answer = given[study, contrast.name]
                effect = ", ".join(f"{one:+}" for one in _effects_of(answer))
                detectable = f"{answers.detectable(answer.difference):.2f}"
                rows.setdefault(contrast.name, [contrast.name]).append(
                    f"{text.with_interval(answer.difference)}, {answer.verdict} "
                    f"[{effect}{'; ' if effect else ''}{detectable}]"
                )
    return text.table(["difference", *studies.QUESTIONS[question]], rows.values())


def record_of_contrasts() -> list[list[str]]:
    """All contrasts: first the primary ones."""
    rows = [
        [
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
    ]
    for answer in answers.answers():
        rows.append(
            [
                answer.contrast.study,
                answer.contrast.name,
                text.with_interval(answer.difference),
                text.probability(answer.difference.p_value),
                text.probability(answer.corrected),
                answer.verdict,
                ", ".join(f"{one:+}" for one in _effects_of(answer)),
                f"{answers.detectable(answer.difference):.2f}",
                text.probability(answer.difference.equivalence),
            ]
        )
    for one in _secondary():
        numbers = [text.with_interval(one), text.probability(one.p_value)]
        name = [one.contrast.study, one.contrast.name]
        rows.append([*name, *numbers, "", "secondary", "", "", ""])
    return rows


def record_of_accuracies() -> list[list[str]]:
    """The accuracy and the selected parameters of each loss."""
    rows = [["study", "loss and head", "test accuracy", "deviation", "best possible", "selected"]]
    for study in studies.STUDIES:
        for arm in studies.results(study)["arms"]:
            metric = studies.results(study)["select_by"]
            found = answers.stored_accuracies(study, arm["name"], metric)
            rows.append(
                [
                    study,
                    arm["name"],
                    f"{found.mean():.2f}",
                    f"{found.std(ddof=1):.2f}",
                    _best_possible(study, arm["runs"][0]),
                    _selected(arm["selected"]),
                ]
            )
    return rows


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


def _secondary() -> list[answers.Difference]:
    return [
        answers.difference(contrast)
        for study in studies.STUDIES
        for contrast in studies.contrasts(study)
        if not contrast.primary
    ]


def secondary() -> str:
    """The secondary contrasts of the studies."""
    told: dict[str, str] = {}
    for one in _secondary():
        before = f"{told[one.contrast.name]}; " if one.contrast.name in told else ""
        here = f"{one.contrast.study} {text.with_interval(one)}"
        told[one.contrast.name] = before + here
    return text.table(["difference", "points"], [[*row] for row in told.items()])


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


def _effects_of(answer: answers.Answer) -> list[Decimal]:
    return effects.effects().get((answer.contrast.study, answer.contrast.name), [])


def fine_tuned_contrasts(study: str) -> str:
    """All contrasts of a study of fine-tuning."""
    given = {one.contrast: one for one in answers.fine_tuned(study)}
    metrics = {
        "macro_top_5_accuracy": "macro top-5",
        "top_5_accuracy": "top-5",
        "top_1_accuracy": "top-1",
    }
    rows = []
    for contrast in studies.contrasts(study):
        found = answers.difference(contrast)
        known = effects.effects().get((study, contrast.name), [])
        smallest = found.error * detectable_errors(found.num_seeds, len(given))
        rows.append(
            [
                f"{contrast.first} - {contrast.second}",
                metrics[contrast.metric],
                text.with_interval(found),
                text.probability(given[contrast].corrected) if contrast.primary else "–",
                ", ".join(f"{one:+}" for one in known) if known else "–",
                f"{smallest:.2f}",
            ]
        )
    columns = ["contrast", "metric", "difference, points", "p, Holm", "published", "detectable"]
    return text.table(columns, rows)


def fine_tuned_accuracies(study: str) -> str:
    """The mean accuracies of the losses in a study of fine-tuning."""
    rows = []
    for arm in studies.planned(study)["arms"]:
        top_5, top_1 = (
            answers.stored_accuracies(study, arm["name"], f"macro_top_{k}_accuracy").mean()
            for k in (5, 1)
        )
        rows.append([arm["name"], f"{top_5:.1f}", f"{top_1:.1f}"])
    return text.table(["loss", "macro top-5", "macro top-1"], rows)


def better_heads() -> str:
    """The losses with the heads of the higher validation accuracy."""
    return text.table(
        ["study", "difference, each with its better head", "points"],
        [
            [one.contrast.study, one.contrast.name, text.with_interval(one)]
            for one in pooling.better_heads()
        ],
    )


def hierarchical_model() -> str:
    """The model over the studies of each contrast that has several."""
    names = {
        (question, contrast.name): None
        for question in ("tail", "noise", "average")
        for study in studies.QUESTIONS[question]
        for contrast in studies.contrasts(study)
        if contrast.primary
    }
    rows, verdicts = [], {}
    for question, name in names:
        found = answers.answers_to(question, name)
        mean, new = pooling.model(question, name, 2.0)
        sets = {one for one in pooling.SETS for other in found if one in other.contrast.study}
        verdicts[question, name] = pooling.verdict(mean)
        rows.append(
            [
                name,
                f"{len(found)}, {len(sets)}",
                f"{mean.mean:+.2f}",
                *(
                    f"{one.quantile(0.025):+.2f} to {one.quantile(0.975):+.2f}"
                    for one in (mean, new)
                ),
                f"{1 - new.below(0.0):.2f}",
                verdicts[question, name],
            ]
        )
    lines = []
    for scale in (1.0, 4.0):
        others = {key: pooling.verdict(pooling.model(*key, scale)[0]) for key in names}
        changed = [f"{key[1]} ({other})" for key, other in others.items() if other != verdicts[key]]
        told = "; ".join(changed) or "none"
        lines.append(f"With a scale of {scale:g} in place of 2, other answers: {told}.")
    columns = [
        "difference",
        "studies, data sets",
        "mean",
        "its 95 % interval",
        "95 % interval in another data set",
        "probability above 0 there",
        "on average",
    ]
    return "\n".join([text.table(columns, rows), "", *lines])


TABLES: dict[str, Callable[[], str]] = {
    "secondary": secondary,
    "times": training_times,
    "other answers": other_answers,
    "corrected equivalences": corrected_equivalences,
    "claims": claims.table,
    "better heads": better_heads,
    "hierarchical model": hierarchical_model,
    **{
        f"{question} contrasts": functools.partial(contrasts_of, question)
        for question in studies.QUESTIONS
    },
    **{
        f"fine tuned {name} {kind}": functools.partial(made, f"fine_tuned_{name}")
        for name in ("tail", "noise")
        for kind, made in (
            ("contrasts", fine_tuned_contrasts),
            ("accuracies", fine_tuned_accuracies),
        )
    },
}
RECORDS: dict[str, Callable[[], list[list[str]]]] = {
    "contrasts.csv": record_of_contrasts,
    "accuracies.csv": record_of_accuracies,
}
