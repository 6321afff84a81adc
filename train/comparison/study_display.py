"""Prints a study: its arms with what was selected, and its contrasts."""

from collections.abc import Iterator

from train.comparison.study_results import ArmNumbers, ContrastNumbers, StudyNumbers
from train.evaluation.metric import Metric
from train.foundation.console import show_line
from train.series.planner import Tuned
from train.series.printing import Column, console_of_tables, show_columns, with_interval
from train.series.run_fields import short_name
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
    """Prints the table of the arms, that of the contrasts, and what a reader has to know."""
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
    for path, differing in numbers.foreign.items():
        yield f"{path} holds a run of another configuration ({'; '.join(differing)})"
    if numbers.to_go:
        yield f"about {numbers.to_go} runs to go"
