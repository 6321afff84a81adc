"""Four figures: level sets of losses, and of runs a metric over a field, accuracies, curves."""

import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.tri import TriAnalyzer, Triangulation

from topk_jax import losses
from train.foundation import files
from train.foundation.errors import UserError
from train.foundation.kinds import wrong
from train.reports import figure_style
from train.reports.metric import AVERAGES, LOSS, Metric, Rule
from train.run.runs import StoredRun
from train.study import tables
from train.study.statistics import Estimate, mean
from train.study.tables import Group

Kind = Literal["level_sets", "field", "set_sizes", "curves"]

_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
# Losses bend at the middles of the sides and at the centre: with a number that 2 and 3 divide,
# these are points.
_CELLS = 90
# Flat parts are often at 0, 1/2 and 1. These are in the middle of a band, where rounding errors
# draw no lines.
_LEVELS = np.linspace(-0.05, 1.05, 12)


def draw(
    kind: Kind,
    runs: Sequence[StoredRun],
    out: Path,
    *,
    over: str | None = None,
    metric: str | None = None,
    split: str = "test",
) -> None:
    """Draws a figure and writes it.

    Args:
        kind: the figure.
        runs: finished runs, at least one; level sets need none.
        out: the file, a .png, .svg or .pdf.
        over: the field of the configuration that is the axis of `field`.
        metric: the metric of `field` and `curves`; by default the one that selected the epochs.
        split: the split of `field` and `set_sizes`.

    Raises:
        UserError: the runs lack what is drawn.
    """
    if kind == "level_sets":
        figure = level_sets()
    elif kind == "set_sizes":
        figure = set_sizes(runs, split)
    else:
        shown = Metric.parse(metric or str(runs[0].fields["select_by"]))
        figure = field(runs, str(over), shown, split) if kind == "field" else curves(runs, shown)
    files.write_whole(out, figure_style.encode(figure, out.suffix))


def field(runs: Sequence[StoredRun], over: str, metric: Metric, split: str) -> Figure:
    """A metric over a field in which the runs differ: means over seeds with 95 % intervals.

    Runs without a value of the field, such as those of a loss that does not take it, are a level.

    Raises:
        UserError: the runs do not differ in the field, it has other values than numbers, or a run
            lacks the metric.
    """
    table = tables.rows(runs)
    if over not in table.fields:
        must_be = f"a field in which the runs differ, {', '.join(table.fields)}"
        raise UserError(field="--over", must_be=must_be, got=over)
    lines: dict[str, dict[float | None, Estimate]] = defaultdict(dict)
    for group in table.groups:
        value = group.fields.get(over)
        if wrong(value, float | None):
            raise UserError(field="--over", must_be="a field of numbers", but=f"{over} is {value}")
        lines[table.label(group, without=over)][value] = _estimate(group, metric, split)
    figure = figure_style.new_figure(7, 4)
    axes = figure.subplots()
    for index, (label, points) in enumerate(lines.items()):
        look = figure_style.line_look(index) | {"label": label}
        if at := sorted(x for x in points if x is not None):
            _errorbar(axes, at, [points[x] for x in at], **look)
        if None in points:
            level, width = points[None].value, points[None].half_width
            axes.axhline(level, **look | {"marker": ""})
            axes.axhspan(level - width, level + width, color=look["color"], alpha=0.15, lw=0)
    places = sorted(x for points in lines.values() for x in points if x is not None)
    if places[0] > 0 and places[-1] >= 8 * places[0]:
        axes.set_xscale("log")
    if metric.is_accuracy:
        figure_style.show_as_percent(axes.yaxis)
    figure_style.finish(axes, x_label=f"config.{over}", y_label=f"{split} {metric.in_words}")
    figure.suptitle(_heading(runs), fontsize=9)
    figure_style.legend_below_all(figure, axes)
    return figure


def set_sizes(runs: Sequence[StoredRun], split: str) -> Figure:
    """Accuracy over the mean size of sets: average-K sets, and hollow and fainter the top-K sets.

    Raises:
        UserError: a run lacks a metric.
    """
    table, figure = tables.rows(runs), figure_style.new_figure(10, 4)
    axes_of = figure.subplots(1, 2, sharex=True)
    for axes, average in zip(axes_of, AVERAGES[:2], strict=True):
        for index, group in enumerate(table.groups):
            ks = sorted(group.fields["eval.ks"])
            mean_sizes = [_estimate(group, Metric.set_size(k), split).value for k in ks]
            look = figure_style.line_look(index) | {"label": table.label(group)}
            faint = look | {"label": "", "alpha": 0.5, "markerfacecolor": "none", "linewidth": 0.8}
            drawn: dict[Rule, Any] = {"average": (mean_sizes, look), "top": (ks, faint)}
            for rule, (sizes, of_rule) in drawn.items():
                metrics = [Metric.accuracy(rule, k, average) for k in ks]
                points = [_estimate(group, metric, split) for metric in metrics]
                _errorbar(axes, sizes, points, **of_rule)
        figure_style.show_as_percent(axes.yaxis)
        words = split if average == "micro" else f"{split} {average}"
        figure_style.finish(axes, x_label="mean size of the sets", y_label=f"{words} accuracy")
    figure.suptitle(f"average-K sets; hollow: top-K sets; {_heading(runs)}", fontsize=9)
    figure_style.legend_below_all(figure, axes_of[0])
    return figure


def curves(runs: Sequence[StoredRun], metric: Metric) -> Figure:
    """The training loss and a validation metric over the epochs, a line for each run.

    Seeds of one experiment look alike. The last point of the selected epoch has a marker.

    Raises:
        UserError: a run did not log the metric.
    """
    table, figure = tables.rows(runs), figure_style.new_figure(11, 4)
    axes_of = figure.subplots(1, 2)
    # Losses can be compared only with the same loss; the metric with all.
    for axes, split, shown in zip(axes_of, ("train", "validation"), (LOSS, metric), strict=True):
        for index, group in enumerate(table.groups):
            look, label = figure_style.line_look(index), table.label(group)
            for run in group.seeds.values():
                logged = (line for line in run.metrics() if line["split"] == split)
                lines = [line for line in logged if shown.name in line]
                if not lines:
                    raise UserError(f"{run.workdir} did not log {split} {shown.name}")
                best = run.results["best_epoch"]
                epochs = [line["step"] / run.results["best_step"] * best for line in lines]
                # The metric of classes that do not occur is None: a gap.
                values = np.array([line[shown.name] for line in lines], np.float64)
                marked = [at for at, line in enumerate(lines) if line["epoch"] == best][-1:]
                axes.plot(epochs, values, **look, markevery=marked, label=label)
                label = ""  # The legend has an experiment once.
        if shown.is_accuracy:
            figure_style.show_as_percent(axes.yaxis)
        figure_style.count_whole(axes.xaxis)
        figure_style.finish(axes, x_label="epoch", y_label=f"{split} {shown.in_words}")
    selecting = {Metric.parse(str(run.fields["select_by"])).in_words for run in runs}
    figure.suptitle(f"marked: the epoch selected by {' or '.join(sorted(selecting))}", fontsize=9)
    figure_style.legend_below_all(figure, axes_of[0])
    return figure


def level_sets() -> Figure:
    """The losses for K = 1 and K = 2 on scores of three classes, each rescaled to [0, 1]."""
    cells = [(_CELLS - i - j, i, j) for j in range(_CELLS + 1) for i in range(_CELLS + 1 - j)]
    shares = np.array(cells, np.float32) / _CELLS
    labels = np.full(len(shares), 2)
    surface = Triangulation(*(shares @ _CORNERS).T)
    # Rounding puts flat triangles on the sides.
    surface.set_mask(TriAnalyzer(surface).get_flat_tri_mask())
    figure = figure_style.new_figure(11, 9)
    figure.suptitle(
        "Level sets of the losses, rescaled to [0, 1], for three classes\n"
        "corners: a score of 2 for one class and 0 for the others, the label above",
        fontsize=9,
    )
    grid = figure.subplots(4, 5)
    drawn = [(f"K = {k}: {title}", loss) for k in (1, 2) for title, loss in panels(k).items()]
    for axes, (title, loss) in zip(grid.flat, drawn, strict=True):
        values = np.asarray(jax.jit(loss)(2 * shares, labels), np.float64)
        values = (values - values.min()) / (values.max() - values.min())
        filled = axes.tricontourf(surface, values, _LEVELS, cmap=figure_style.COLOR_MAP)
        # The lines can also be distinguished in small print.
        axes.tricontour(surface, values, _LEVELS, colors="white", linewidths=0.6)
        axes.set_title(title, fontsize=8)
        axes.set_aspect("equal")
        axes.set_axis_off()
    figure.colorbar(filled, ax=grid, shrink=0.7, aspect=30, ticks=[0.0, 0.5, 1.0])
    return figure


def panels(k: int) -> dict[str, Callable[..., jax.Array]]:
    """The losses for a K by the titles of their panels, [points, 3] and [points] to [points]."""
    of = functools.partial
    # What the noised loss approaches with more samples.
    noised = of(losses.expected_top_k_hinge, k=k)
    return {
        "top-K error": of(losses.top_k_error, k=k),
        "cross-entropy": losses.cross_entropy,
        "top-K hinge": of(losses.top_k_hinge, k=k),
        "calibrated\ntop-K hinge": of(losses.calibrated_top_k_hinge, k=k),
        "convex\ntop-K hinge": of(losses.convex_top_k_hinge, k=k),
        "smooth top-K hinge\nτ = 0.1": of(losses.smooth_top_k_hinge, k=k, tau=0.1),
        "smooth top-K hinge\nτ = 1": of(losses.smooth_top_k_hinge, k=k, tau=1.0),
        "noised balanced\nε = 0.3": of(noised, epsilon=0.3, margins=1.0),
        "noised balanced\nε = 1": of(noised, epsilon=1.0, margins=1.0),
        "noised imbalanced\nε = 1, m = 0.5": of(noised, epsilon=1.0, margins=0.5),
    }


def _estimate(group: Group, metric: Metric, split: str) -> Estimate:
    """The mean of a metric of a split over seeds, which all have it."""
    values = group.values(metric, split)
    for seed, run in group.seeds.items():
        if seed not in values:
            raise UserError(f"{run.workdir} has no {split} {metric.name}")
    return mean([*values.values()])


def _heading(runs: Sequence[StoredRun]) -> str:
    names = sorted({str(run.fields["dataset.name"]) for run in runs})
    return f"{', '.join(names)}: mean over the seeds, with its 95 % interval"


def _errorbar(axes: Axes, x: Sequence[float], points: Sequence[Estimate], **look: Any) -> None:
    """A line of means with their intervals; one seed has none, and its bar is not drawn."""
    widths = [point.half_width for point in points]
    axes.errorbar(x, [point.value for point in points], yerr=widths, capsize=3, **look)
