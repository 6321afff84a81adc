"""A study as it is printed, and as it is written to JSON: its file, every run, and the hits."""

import base64
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from train.comparison.study_results import ArmNumbers, ContrastNumbers, StudyNumbers
from train.foundation.console import show_line
from train.reports.metric import Metric
from train.run.runs import StoredRun, identity_without_seed
from train.series.parameters import Choice, Parameter
from train.series.planner import Tuned
from train.series.printing import Column, console_of_tables, show_columns, with_interval
from train.series.run_fields import short_name
from train.series.search import Drawn
from train.series.statistics import Summary

_LEGEND = (
    "Arms: mean over seeds ± 95 % interval (Student's t).",
    "Contrasts: the first arm minus the second ± 95 % interval, by a bootstrap over seeds and test "
    "examples.",
    "detectable: the difference that is found with a probability of 80 %.",
)
_NONE = "-"
_POINTS = 100


def show(numbers: StudyNumbers) -> None:
    """Prints the tables of the arms and of the contrasts, and notes for the reader."""
    console = console_of_tables()
    study = numbers.study
    console.print(f"arms, {study.split} split")
    show_columns(console, _arm_columns(numbers))
    console.print("contrasts, in points")
    show_columns(console, list(_contrast_columns(numbers)))
    for line in _LEGEND:
        console.print(line)
    for note in _notes(numbers):
        show_line(note)


def _arm_columns(numbers: StudyNumbers) -> list[Column]:
    finals = [arm.finals for arm in numbers.arms.values()]
    columns = [
        Column("arm", tuple(numbers.arms), is_number=False),
        Column("selected", tuple(_selected(one.tuned) for one in finals), is_number=False),
        Column("candidates", tuple(str(len(one.tuned.drawn.candidates)) for one in finals)),
        Column("seeds", tuple(str(len(one.ended)) for one in finals)),
    ]
    for metric in numbers.study.metrics:
        cells = tuple(_mean(arm, metric) for arm in numbers.arms.values())
        columns.append(Column(f"{metric.in_few_words} (%)", cells))
    return columns


def _selected(tuned: Tuned) -> str:
    """The tuned fields of the selected candidate."""
    if tuned.fields is None:
        return "all candidates diverged" if tuned.failed else "to be tuned"
    return ", ".join(f"{short_name(name)}={value}" for name, value in tuned.fields) or _NONE


def _mean(arm: ArmNumbers, metric: Metric) -> str:
    summary = arm.values(metric).summary
    return _NONE if summary is None else with_interval(summary, metric, sign="")


def _contrast_columns(numbers: StudyNumbers) -> Iterator[Column]:
    every = numbers.contrasts
    yield Column("contrast", tuple(one.planned.name for one in every), is_number=False)
    yield Column("metric", tuple(one.planned.metric.in_few_words for one in every), is_number=False)
    yield Column("difference", tuple(map(_difference, every)))
    yield Column("p", tuple(map(_of_difference, every)))
    if any(one.planned.primary for one in every):
        yield Column("p (Holm)", tuple(_p_value(one.adjusted) for one in every))
    if any(one.planned.equivalence is not None for one in every):
        yield Column("p (equivalence)", tuple(map(_equivalence, every)))
    yield Column("detectable", tuple(map(_detectable, every)))


def _difference(contrast: ContrastNumbers) -> str:
    numbers = contrast.numbers
    if numbers is None:
        return _NONE
    summary = Summary(numbers.estimate, numbers.half_width)
    return with_interval(summary, contrast.planned.metric, sign="+")


def _of_difference(contrast: ContrastNumbers) -> str:
    return _p_value(None if contrast.numbers is None else contrast.numbers.p_value)


def _equivalence(contrast: ContrastNumbers) -> str:
    margin = contrast.planned.equivalence
    return _NONE if margin is None else f"{_p_value(contrast.equivalence)} (±{margin:g})"


def _detectable(contrast: ContrastNumbers) -> str:
    numbers = contrast.numbers
    return _NONE if numbers is None else f"{_POINTS * numbers.minimal_detectable:.2f}"


def _p_value(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2g}"


def _notes(numbers: StudyNumbers) -> Iterator[str]:
    for name, arm in numbers.arms.items():
        if arm.finals.diverged:
            seeds = ", ".join(map(str, arm.finals.diverged))
            yield f"{name}: training diverged with seeds {seeds}, which count as 0 %"
    for path, differing in numbers.collected.foreign.items():
        yield f"{path} holds a run of another configuration ({'; '.join(differing)})"
    if numbers.collected.to_go:
        yield f"about {numbers.collected.to_go} runs to go"


# Copied from results.json if a run has it: the best classifier, for example, is known only for some
# data sets.
_OF_RESULTS = (
    "best_epoch",
    "epoch_seconds",
    "num_parameters",
    "temperature",
    "bayes",
    "bayes_balanced_test",
)


def to_plain(numbers: StudyNumbers) -> dict[str, Any]:
    """All numbers as plain JSON types, as `results.json` has them: accuracies are in [0, 1]."""
    study = numbers.study
    return {
        "study": {"file": study.file, "sha256": study.sha256, "content": study.content},
        "select_by": study.select_by.name,
        "split": study.split,
        "versions": _versions(numbers),
        "labels": None if numbers.labels is None else _labels(numbers.labels),
        "arms": [_arm(numbers, name, arm) for name, arm in numbers.arms.items()],
        "contrasts": [_contrast(contrast) for contrast in numbers.contrasts],
        "runs_to_go": numbers.collected.to_go,
    }


def _versions(numbers: StudyNumbers) -> dict[str, list[str]]:
    """The versions that the runs of the selected candidates were made with."""
    found: dict[str, dict[str, None]] = {}
    for arm in numbers.arms.values():
        for run in arm.finals.finished.values():
            for name, version in run.results.get("versions", {}).items():
                found.setdefault(name, {})[version] = None
    return {name: list(versions) for name, versions in found.items()}


def _arm(numbers: StudyNumbers, name: str, arm: ArmNumbers) -> dict[str, Any]:
    study, finals, tuned = numbers.study, arm.finals, arm.finals.tuned
    recipe, search = study.arms[name].recipe, study.arms[name].search
    wanted = [
        contrast.metric for contrast in study.contrasts if name in (contrast.first, contrast.second)
    ]
    return {
        "name": name,
        "config": recipe.argument,
        "fields": dict(recipe.overrides),
        "space": {one.name: _parameter(one) for one in (search.space if search else ())},
        "candidates": _candidates(tuned),
        "extensions": _extensions(tuned.drawn),
        "finalists": list(tuned.finalists),
        "selected": None if tuned.fields is None else dict(tuned.fields),
        "configuration": next(
            (identity_without_seed(run.config) for run in finals.finished.values()), None
        ),
        "runs": [
            _run(seed, run, study.split, study.select_by) for seed, run in finals.ended.items()
        ],
        "hits": {
            metric.name: _hits(arm.hits(metric, len(numbers.labels)))
            for metric in dict.fromkeys(wanted)
            if numbers.labels is not None and finals.ended
        },
    }


def _candidates(tuned: Tuned) -> list[dict[str, Any]]:
    return [
        {
            "fields": dict(fields),
            "scores": {str(seed): trial.score for seed, trial in trials.items()},
            "training_seconds": {
                str(seed): None if trial.run is None else sum(trial.run.results["epoch_seconds"])
                for seed, trial in trials.items()
            },
        }
        for fields, trials in zip(tuned.drawn.candidates, tuned.trials, strict=True)
    ]


def _extensions(drawn: Drawn) -> list[dict[str, Any]]:
    return [
        {
            "first_candidate": one.first,
            "ranges": {
                name: {"side": one.sides[name], **_parameter(parameter)}
                for name, parameter in one.ranges.items()
            },
        }
        for one in drawn.extensions
    ]


def _parameter(parameter: Parameter) -> dict[str, Any]:
    if isinstance(parameter, Choice):
        return {"values": list(parameter.values)}
    limits = {"least": parameter.least, "most": parameter.most}
    return {
        "from": parameter.start,
        "to": parameter.end,
        "scale": parameter.scale,
        **{name: limit for name, limit in limits.items() if limit is not None},
    }


def _run(seed: int, run: StoredRun | None, split: str, select_by: Metric) -> dict[str, Any]:
    if run is None:
        return {"seed": seed, "diverged": True}
    return {
        "seed": seed,
        "diverged": False,
        "folder": run.workdir.name,
        "metrics": dict(run.results[split]),
        **{name: run.results[name] for name in _OF_RESULTS if name in run.results},
        # For a computation of the time to an accuracy.
        "validation_by_epoch": _by_epoch(run, select_by),
    }


def _by_epoch(run: StoredRun, metric: Metric) -> list[float | None]:
    return [line.get(metric.name) for line in run.metrics() if line.get("split") == "validation"]


def _hits(hits: np.ndarray) -> dict[str, Any]:
    return {
        "shape": list(hits.shape),
        "packed_bits": _base64(np.packbits(hits, axis=None)),
    }


def _labels(labels: np.ndarray) -> dict[str, Any]:
    return {"shape": list(labels.shape), "little_endian_int32": _base64(labels.astype("<i4"))}


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _contrast(contrast: ContrastNumbers) -> dict[str, Any]:
    planned = contrast.planned
    numbers = None if contrast.numbers is None else dataclasses.asdict(contrast.numbers)
    return {
        "name": planned.name,
        "first": planned.first,
        "second": planned.second,
        "metric": planned.metric.name,
        "primary": planned.primary,
        "equivalence_margin": planned.equivalence,
        "numbers": numbers,
        "p_value_holm": contrast.adjusted,
        "p_value_equivalence": contrast.equivalence,
    }
