"""Curves over a field of the configuration: means over seeds with their 95 % intervals."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from train.foundation.errors import UserError
from train.foundation.kinds import did_you_mean, one_of, wrong
from train.papers.figures import selection
from train.reports import figure_style
from train.reports.metric import LOSS, Metric
from train.run import run_folder
from train.run.runs import StoredRun
from train.series.statistics import Summary, summarize

_BATCH_SIZE, _RATE = "dataset.batch_size", "optimizer.learning_rate"
# Users round the rates that they type.
_ROUNDING = 0.01
_SPLITS = {"validation": "best validation", "test": "test"}


@dataclass(frozen=True)
class Point:
    """The mean over the seeds of one experiment, at a value of the field.

    Attributes:
        x: the value; None if the loss does not have the field.
        summary: the mean and its interval.
    """

    x: float | None
    summary: Summary


def lines(
    runs: Sequence[StoredRun], field: str, value: Callable[[StoredRun], float]
) -> dict[str, list[Point]]:
    """The points of each line by its label, sorted by the value of the field.

    Raises:
        UserError: no run has the field, or the runs of a point are not seeds of one experiment.
    """
    selection.check_field(runs, field)
    experiments: dict[str, dict[float | None, list[StoredRun]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for run, label in zip(runs, selection.labels(runs, without=field), strict=True):
        experiments[label][selection.number(run, field)].append(run)
    found: dict[str, list[Point]] = {}
    for label, by_x in experiments.items():
        if None in by_x and len(by_x) > 1:
            raise UserError(
                f"{by_x[None][0].workdir} has no value of config.{field}; others of its kind have"
            )
        points = []
        for x, seeds in by_x.items():
            selection.check_seeds(seeds)
            points.append(Point(x, summarize([value(run) for run in seeds])))
        found[label] = sorted(points, key=lambda point: point.x or 0.0)
    return found


def metric_against_field(
    runs: Sequence[StoredRun], *, metric: str, field: str, split: str
) -> Figure:
    """A metric over any field of the configuration (thesis, Figure 5.5).

    Args:
        runs: the runs, of one data set.
        metric: the name of the metric.
        field: the dotted name of the field.
        split: "validation" for the best value over the epochs, as in the thesis, or "test".

    Raises:
        UserError: a run lacks the metric or the field, or the best value of the metric is not
            defined.
    """
    shown = Metric.parse(metric)
    figure, axes = _draw(runs, field, _reader(shown, split))
    if shown.is_accuracy:
        figure_style.show_as_percent(axes.yaxis)
        # The interval of a few seeds can end below 0 or above 1.
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0.0), min(high, 1.005))
    figure_style.finish(
        axes,
        x_label=f"{selection.symbol(field)} (config.{field})",
        y_label=f"{_SPLITS[split]} {shown.in_words}",
    )
    figure_style.legend_beside(figure, axes)
    return figure


def metric_against_batch_size(runs: Sequence[StoredRun], *, metric: str, split: str) -> Figure:
    """A metric over the batch size, with one ratio of rate and batch size (thesis, Figure 5.6).

    Raises:
        UserError: as `metric_against_field`, or the runs of a line have several ratios.
    """
    selection.check_field(runs, _BATCH_SIZE)
    by_line: dict[str, list[StoredRun]] = defaultdict(list)
    for run, label in zip(runs, selection.labels(runs), strict=True):
        by_line[label].append(run)
    for label, of_line in by_line.items():
        _check_one_ratio(label, of_line)
    return metric_against_field(runs, metric=metric, field=_BATCH_SIZE, split=split)


def gradient_sparsity(runs: Sequence[StoredRun]) -> Figure:
    """The gradient coordinates that are not zero, over the noise (thesis, Figure 4.2)."""
    figure, axes = _draw(runs, "loss.epsilon", nonzero_gradients)
    # The runs are of one data set.
    classes = runs[0].results.get("num_classes")
    if isinstance(classes, int):
        axes.axhline(
            classes, color=figure_style.REFERENCE_COLOR, ls=":", label=f"all {classes} classes"
        )
    axes.set_ylim(bottom=0)
    figure_style.finish(
        axes,
        x_label="noise ε (units of the logits)",
        y_label="non-zero gradient coordinates\nan example, mean of the first epoch",
    )
    figure_style.legend_beside(figure, axes)
    return figure


def epoch_time(runs: Sequence[StoredRun]) -> Figure:
    """The duration of an epoch over K (thesis, Figure 4.3)."""
    figure, axes = _draw(runs, "loss.k", epoch_seconds)
    axes.set_ylim(bottom=0)
    figure_style.finish(axes, x_label="K (classes)", y_label="mean time of an epoch (s)")
    figure_style.legend_beside(figure, axes)
    return figure


def nonzero_gradients(run: StoredRun) -> float:
    """The mean over the steps of the first epoch of a run."""
    name = "nonzero_gradients"
    first_epoch = [
        line for line in run.metrics() if line["split"] == "train" and line["epoch"] == 1
    ]
    if not first_epoch or any(line.get(name) is None for line in first_epoch):
        path = run.workdir / run_folder.METRICS
        raise UserError(f"{path} has no {name} for all of the first epoch")
    # A line is the mean over the steps since the line before.
    steps = np.diff([0, *(line["step"] for line in first_epoch)])
    return float(np.average([line[name] for line in first_epoch], weights=steps))


def epoch_seconds(run: StoredRun) -> float:
    """The mean over the epochs of a run without the first, in which the steps are compiled."""
    seconds = run.results.get("epoch_seconds")
    if not isinstance(seconds, list) or len(seconds) < 2:
        raise UserError(
            f"the time of an epoch needs a run of two epochs or more, because the first is left "
            f"out; {run.workdir} has {len(seconds) if isinstance(seconds, list) else 0}"
        )
    return float(np.mean(seconds[1:]))


def _reader(metric: Metric, split: str) -> Callable[[StoredRun], float]:
    """What reads a metric of a run.

    Raises:
        UserError: the split has another name, or the best value of the metric is not defined.
    """
    if must_be := wrong(split, one_of(_SPLITS)):
        raise UserError(field="--split", must_be=must_be, got=split)
    if split == "test":
        return lambda run: selection.test_metric(run, metric.name)
    if not (metric.is_accuracy or metric == LOSS):
        raise UserError(
            f"--metric must be an accuracy or the loss with --split=validation, which is for the "
            f"best value over the epochs; got {metric.name}"
        )
    return lambda run: _best_validation(run, metric)


def _best_validation(run: StoredRun, metric: Metric) -> float:
    """The best value of a metric on the validation split over the epochs of a run.

    Raises:
        UserError: the run did not log the metric, or it has no value.
    """
    lines = [line for line in run.metrics() if line.get("split") == "validation"]
    logged = {name for line in lines for name in line}
    if metric.name not in logged:
        hint = did_you_mean(metric.name, logged)
        path = run.workdir / run_folder.METRICS
        raise UserError(f"{path} has no validation metric {metric.name!r}{hint}")
    values = [line[metric.name] for line in lines if line.get(metric.name) is not None]
    if not values:
        raise UserError(f"the validation metric {metric.name} has no value in {run.workdir}")
    return float(max(values) if metric.is_accuracy else min(values))


def _check_one_ratio(label: str, runs: Sequence[StoredRun]) -> None:
    """Refuses runs of a line whose rates do not follow their batch sizes."""
    ratios = []
    for run in runs:
        values = [selection.number(run, field) for field in (_RATE, _BATCH_SIZE)]
        if None in values or not all(values):
            raise UserError(f"{run.workdir} must have a config.{_RATE} and a config.{_BATCH_SIZE}")
        rate, size = (value for value in values if value is not None)
        ratios.append(rate / size)
    for run, ratio in zip(runs, ratios, strict=True):
        if not math.isclose(ratio, ratios[0], rel_tol=_ROUNDING):
            raise UserError(
                f"the runs of {label} must have one ratio of config.{_RATE} and "
                f"config.{_BATCH_SIZE}: it is {ratios[0]:.6g} in {runs[0].workdir} and "
                f"{ratio:.6g} in {run.workdir}; --figure=metric_against_field "
                f"--field={_BATCH_SIZE} draws them without it"
            )


def _draw(
    runs: Sequence[StoredRun], field: str, value: Callable[[StoredRun], float]
) -> tuple[Figure, Axes]:
    by_label = lines(runs, field, value)
    figure = figure_style.new_figure(7, 4)
    axes = figure.subplots()
    at = sorted(
        {point.x for points in by_label.values() for point in points if point.x is not None}
    )
    for index, (label, points) in enumerate(by_label.items()):
        look = figure_style.line_look(index)
        if points[0].x is None:
            # The loss does not have the field: it is a level to compare with.
            level = points[0].summary
            axes.axhline(level.mean, label=label, **{**look, "marker": ""})
            if level.half_width is not None:
                low, high = level.mean - level.half_width, level.mean + level.half_width
                axes.axhspan(low, high, color=look["color"], alpha=0.15, lw=0)
            continue
        x = [point.x for point in points if point.x is not None]
        means = [point.summary.mean for point in points]
        widths = [point.summary.half_width for point in points]
        # One seed has no interval: its bar is not drawn.
        bars = [np.nan if width is None else width for width in widths]
        axes.errorbar(x, means, yerr=bars, label=label, capsize=3, **look)
    _scale(axes, at)
    seeds = len({run.fields["seed"] for run in runs}) > 1
    [dataset] = {run.fields["dataset.name"] for run in runs}
    interval = ": mean over the seeds and its 95 % interval" if seeds else ""
    axes.set_title(dataset.replace("_", " ") + interval, fontsize=9)
    return figure, axes


def _scale(axes: Axes, at: Sequence[float]) -> None:
    """Makes the axis logarithmic if the values span a wide range, and puts ticks at the points."""
    if at[0] > 0 and at[-1] >= 8 * at[0]:
        axes.set_xscale("log")
    elif not all(float(x).is_integer() for x in at):
        return
    if len(at) <= 10:
        axes.xaxis.set_major_locator(FixedLocator(list(at)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
