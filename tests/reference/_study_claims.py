"""The claims of the thesis and what became of them, computed again from the files."""

import functools
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from tests.reference import _pretrained_study as pretrained
from tests.reference import _studies as studies
from tests.reference import _study_answers as answers
from tests.reference import _study_blocks as blocks
from tests.reference import _study_effects as effects
from tests.reference import _study_statistics as statistics
from tests.reference import _study_text as text

COLUMNS = ["claim", "published", "detectable", "here", "why"]
BENCHMARKS = studies.EVIDENCE.parents[1] / "benchmarks" / "results"


def table() -> str:
    """The claims in a table."""
    return text.table(COLUMNS, [_row(claim) for claim in studies.claims()])


def _row(claim: dict[str, Any]) -> list[str]:
    """The cells of a claim. It is of the first kind that it has the keys of."""
    kinds = {
        "contrast": _primary,
        "unplanned": _not_corrected,
        "secondary": _not_corrected,
        "fine_tuned": _fine_tuned,
        "first_edition": _first_edition,
        "steps": _steps,
        "growth": _growth,
    }
    kind = next((kinds[one] for one in kinds if one in claim), _nothing)
    published, detectable, verdict, parts = kind(claim)
    if "cells" in claim:
        published = [effects.combination(cells) for cells in claim["cells"]]
    if "contrast" in claim and "fine_tuned" in claim:
        parts += _fine_tuned(claim)[-1]
    if "pretrained" in claim:
        parts += _told_of_pretrained(_pretrained(*claim["pretrained"]))
    if "unfair" in claim:
        verdict = "no fair test"
    elif "limit" in claim and verdict != "cannot tell":
        verdict += f" {claim['limit']}"
    for one in ("unfair", "untested", "remark"):
        if one in claim:
            parts.append(blocks.filled(claim[one]))
    told = text.extremes(published, "+") if published else claim.get("published_text", "–")
    if "steps" in claim:
        told = " and ".join(f"+{one} %" for one in claim["steps"].values())
    return [
        f"{claim['claim']} ({claim['source']})",
        told,
        text.extremes(detectable, ".2f") + claim.get("unit", "") if detectable else "–",
        verdict,
        ". ".join(parts),
    ]


def _nothing(claim):
    return [], [], "not tested", []


def _primary(claim):
    """The studies of a question have the contrast among those that are corrected."""
    given = answers.answers_to(claim["question"], claim["contrast"])
    verdicts = [one.verdict for one in given]
    spread = text.extremes([one.difference.points for one in given], "+.2f")
    parts = [f"expected {claim['expected']}: {text.counted(verdicts)}; {spread} points"]
    inside = answers.published_inside(given)
    if inside != "0 of 0":
        parts.append(f"Inside: {inside}")
    return (
        _effects_of(given),
        [answers.detectable(one.difference) for one in given],
        answers.verdict_of_claim(claim["expected"], verdicts),
        parts,
    )


def _fine_tuned(claim):
    study, name = claim["fine_tuned"]
    of_study = answers.fine_tuned(study)
    (one,) = (one for one in of_study if one.contrast.name == name)
    found = one.difference
    smallest = found.error * statistics.detectable_errors(found.num_seeds, len(of_study))
    others = _pretrained(*claim["pretrained"])
    verdicts = [one.verdict, *(other.verdict for other in others)]
    return (
        _effects_of([one]),
        [smallest, *(other.detectable for other in others)],
        answers.verdict_of_claim(claim["expected"], verdicts),
        [f"Fine-tuned: {text.with_interval(found)}, {one.verdict}"],
    )


def _pretrained(question: str, contrast: str) -> list[pretrained.Answer]:
    """The answers of the study on a pretrained network; none before its question is complete."""
    asked = {one["name"] for one in pretrained.plan()["settings"] if one["question"] == question}
    return [
        one for one in _pretrained_answers() if one.setting in asked and one.contrast == contrast
    ]


def _told_of_pretrained(given: Sequence[pretrained.Answer]) -> list[str]:
    if not given:
        return []
    told = text.counted([one.verdict for one in given])
    points = text.extremes([one.points for one in given], "+.2f")
    detectable = text.extremes([one.detectable for one in given], ".2f")
    distances = [abs(max(one.published, key=abs) - one.points) for one in given]
    inside = sum(one <= other.half_width for one, other in zip(distances, given, strict=True))
    return [
        f"Pretrained: {told}; {points} points, detectable {detectable}, "
        f"inside {inside} of {len(given)}"
    ]


@functools.cache
def _pretrained_answers() -> list[pretrained.Answer]:
    return pretrained.answers(pretrained.read())


def _effects_of(given):
    known = effects.effects()
    return [
        effect for one in given for effect in known.get((one.contrast.study, one.contrast.name), [])
    ]


def _not_corrected(claim):
    """Differences without a correction: as points, standard error and number of seeds."""
    found = []
    for study in studies.QUESTIONS.get(claim.get("question", ""), ()):
        for contrast in studies.contrasts(study):
            if not contrast.primary and contrast.name in claim.get("secondary", []):
                one = answers.difference(contrast)
                found.append((one.points, one.error, one.num_seeds))
    for given in claim.get("unplanned", []):
        found += [_unplanned(study, given) for study in given["studies"]]
    sides = Counter(_side(claim["expected"], *one) for one in found)
    spread = text.extremes([points for points, *_ in found], "+.2f")
    num_tests = len(answers.answers())
    return (
        [],
        [error * statistics.detectable_errors(seeds, num_tests) for _, error, seeds in found],
        "secondary: " + ", ".join(f"{number} {side}" for side, number in sorted(sides.items())),
        [f"expected {claim['expected']}: {spread} points"],
    )


def _side(expected, points, error, num_seeds):
    width = statistics.half_width(error, num_seeds)
    if points - width <= 0 <= points + width:
        return "open"
    if expected == "equivalent":
        return "against"
    return "for" if np.sign(points) == {"better": 1, "worse": -1}[expected] else "against"


def _unplanned(study, given):
    names = given["first"], given["second"]
    metric = _metric(study, given.get("metric", ""))
    simple = not {"second_metric", "less_metric", "less_study"} & {*given}
    if simple and metric in studies.arm(study, names[0])["hits"]:
        hits = [studies.hits(study, one, metric).astype(float) for one in names]
        values, macro = hits[0] - hits[1], studies.is_macro(metric)
        labels = studies.labels(study)
        weights = statistics.example_weights(labels, macro=macro)
        error = statistics.bootstrap_standard_error(values, labels, macro=macro)
        # Sums in another order may differ in the middle between two printed numbers.
        points = 100 * round(float((values @ weights).mean()), 12)
        return points, 100 * error, len(values)
    seeds = answers.stored_accuracies(study, names[0], metric)
    second_metric = _metric(study, given.get("second_metric", given.get("metric", "")))
    seeds = seeds - answers.stored_accuracies(study, names[1], second_metric)
    if "less_metric" in given or "less_study" in given:
        other = given.get("less_study", study)
        other_metric = _metric(other, given.get("less_metric", ""))
        first, second = (answers.stored_accuracies(other, one, other_metric) for one in names)
        seeds = seeds - (first - second)
    return seeds.mean(), stats.sem(seeds), len(seeds)


def _metric(study, name):
    """The name of the metric in a study, whose K is in the metric that it selects by."""
    selected = studies.planned(study)["select_by"]
    (k,) = re.findall(r"_(\d+)_accuracy", selected)
    return name.format(k=k) if name else selected


def _first_edition(claim):
    """The differences of the first edition, by Welch's t."""
    if claim["first_edition"] == "flat alpha":
        cells = _cells("E7")
        middle = cells.pop("alpha=0.3")
        del cells["alpha=100"]
        found = [_welch(one, middle) for one in cells.values()]
        bounds = [(-1.0, 1.0)] * len(found)
    else:
        cells = [*_cells("E8").values()]
        found = [_welch(*pair) for pair in zip(cells[1:], cells[:-1], strict=True)]
        bounds = [(0.0, np.inf)] * len(found)
        found.append((cells[-1].mean(), stats.sem(cells[-1]), len(cells[-1]) - 1))
        bounds.append((-np.inf, 5.0))
    kinds = Counter()
    for (center, error, degrees), (low, high) in zip(found, bounds, strict=True):
        half = stats.t.ppf(0.975, degrees) * error
        if low < center - half and center + half < high:
            kinds["holds"] += 1
        else:
            beyond = center + half < low or center - half > high
            kinds["does not" if beyond else "undecided"] += 1
    verdict = "holds"
    if set(kinds) != {"holds"}:
        verdict = "does not hold" if "does not" in kinds else "undecided"
    told = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    num_tests = len(answers.answers())
    return (
        [],
        [
            error * statistics.detectable_errors(degrees + 1, num_tests)
            for _, error, degrees in found
        ],
        f"{verdict} (first edition)",
        [f"[First edition](design.md#the-first-edition): {told}"],
    )


def _cells(name):
    cells = json.loads((studies.EVIDENCE / f"{name}.json").read_text())["cells"]
    return {one["column"]: np.array([*one["values"].values()]) for one in cells}


def _welch(first, second):
    """The difference of two means, its standard error and its degrees of freedom."""
    interval = stats.ttest_ind(first, second, equal_var=False)
    squares = [stats.sem(one) ** 2 for one in (first, second)]
    return first.mean() - second.mean(), sum(squares) ** 0.5, interval.df


def _steps(claim):
    found = json.loads((BENCHMARKS / "train_step_densenet-gpu.json").read_text())
    (network,) = found["models"]
    seconds = {}
    for one in network["losses"]:
        if one["M"] in (None, 3):
            seconds[one["loss"]] = one["loss_seconds"]
        if one["loss"] == "cross_entropy":
            step = one["step_seconds"]
    added = [100 * (seconds[loss] - seconds["cross_entropy"]) / step for loss in claim["steps"]]
    published = claim["steps"].values()
    holds = added == sorted(added) and all(
        one <= other for one, other in zip(added, published, strict=True)
    )
    parts = [
        f"`{loss}`: {one:+.2f} % of a step" for loss, one in zip(claim["steps"], added, strict=True)
    ]
    return [], [], "reproduced" if holds else "not reproduced", parts


def _growth(claim):
    found = json.loads((BENCHMARKS / "train_step-cpu.json").read_text())["models"]
    (densenet,) = (one for one in found if one["model"] == "densenet_40_40")
    grown = []
    for loss in claim["growth"]:
        small, large = (
            next(
                one["loss_seconds"]
                for one in densenet["losses"]
                if one["loss"] == loss and one["K"] == k and one["M"] != 10
            )
            for k in (5, 10)
        )
        grown.append(large / small)
    parts = [
        f"`{loss}`: {one:.2f} times as long"
        for loss, one in zip(claim["growth"], grown, strict=True)
    ]
    return [], [], "reproduced" if grown == sorted(grown) else "not reproduced", parts
