"""Curves over a field of the configuration: means over seeds with their 95 % intervals."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from train.evaluation.metric import Metric
from train.foundation.errors import UserError
from train.papers.figures import selection
from train.series.statistics import Summary, summarize
from train.workdir import figure_style
from train.workdir.runs import Run


@dataclass(frozen=True)
class Point:
    """The mean over the seeds of one experiment, at a value of the field.

    Attributes:
        x: the value; None if the loss does not have the field.
        summary: the mean and its interval.
    """

    x: float | None
    summary: Summary


def lines(runs: Sequence[Run], field: str, value: Callable[[Run], float]) -> dict[str, list[Point]]:
    """The points of each line by its label, sorted by the value of the field.

    Raises:
        UserError: no run has the field, or the runs of a point are not seeds of one experiment.
    """
    selection.check_field(runs, field)
    experiments: dict[str, dict[float | None, list[Run]]] = defaultdict(lambda: defaultdict(list))
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


def metric_against_field(runs: Sequence[Run], *, metric: str, field: str) -> Figure:
    """A test metric over any field of the configuration (thesis, Figures 5.5 and 5.6)."""
    figure, axes = _draw(runs, field, lambda run: selection.test_metric(run, metric))
    # All runs have it.
    shown = Metric.parse(metric)
    if shown.is_accuracy:
        figure_style.show_as_percent(axes.yaxis)
        # The interval of a few seeds can end below 0 or above 1.
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0.0), min(high, 1.005))
    figure_style.finish(
        axes,
        x_label=f"{selection.symbol(field)} (config.{field})",
        y_label=f"test {shown.in_words}",
    )
    figure_style.legend_beside(figure, axes)
    return figure


def gradient_sparsity(runs: Sequence[Run]) -> Figure:
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


def epoch_time(runs: Sequence[Run]) -> Figure:
    """The duration of an epoch over K (thesis, Figure 4.3)."""
    figure, axes = _draw(runs, "loss.k", epoch_seconds)
    axes.set_ylim(bottom=0)
    figure_style.finish(axes, x_label="K (classes)", y_label="mean time of an epoch (s)")
    figure_style.legend_beside(figure, axes)
    return figure


def nonzero_gradients(run: Run) -> float:
    """The mean over the steps of the first epoch of a run."""
    return run.first_epoch_mean("nonzero_gradients")


def epoch_seconds(run: Run) -> float:
    """The mean over the epochs of a run without the first, in which the steps are compiled."""
    seconds = run.results.get("epoch_seconds")
    if not isinstance(seconds, list) or len(seconds) < 2:
        raise UserError(
            f"the time of an epoch needs a run of two epochs or more, for the first is left out; "
            f"{run.workdir} has {len(seconds) if isinstance(seconds, list) else 0}"
        )
    return float(np.mean(seconds[1:]))


def _draw(runs: Sequence[Run], field: str, value: Callable[[Run], float]) -> tuple[Figure, Axes]:
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
