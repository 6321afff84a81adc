"""The figure of a monitor: the coverage so far, and the evidence that something changed."""

import math

import numpy as np
from matplotlib.figure import Figure

from topk_jax import metrics
from train.monitoring.monitor import Monitor
from train.reports import figure_style


def draw(monitor: Monitor) -> Figure:
    """The coverage with its interval at all times, and the evidence of both tests."""
    count, misses, *peaks = monitor.points.T
    grey = figure_style.REFERENCE_COLOR
    figure = figure_style.new_figure(10, 5)
    left, right = figure.subplots(1, 2)
    colors = [figure_style.line_look(index)["color"] for index in range(2)]
    hits = (count - misses).astype(int)
    low, high = map(np.asarray, metrics.anytime_interval(hits, count.astype(int)))
    always = "95% at all times together"
    left.fill_between(count, low, high, color=colors[0], alpha=0.2, lw=0, label=always)
    left.plot(count, hits / count, color=colors[0], label="coverage so far")
    left.axhline(monitor.promise.coverage, color=grey, ls="--", label="promised")
    left.axhline(1 - monitor.allowed_error, color=grey, ls=":", label="allowed")
    figure_style.show_as_percent(left.yaxis)
    whats, whens = ("promise broken", "scores changed"), (monitor.broken_at, monitor.changed_at)
    for what, values, at, color in zip(whats, peaks, whens, colors, strict=True):
        right.plot(count, values / math.log(10), color=color, label=what)
        if at is not None:
            right.axvline(at, color=color, ls=":", label=f"alarm at {at:,}")
    right.axhline(monitor.log_needed / math.log(10), color=grey, ls="--", label="alarm")
    for axes, label in ((left, "coverage"), (right, "evidence, as a power of 10")):
        figure_style.finish(axes, x_label="outcomes", y_label=label)
        figure_style.legend_below(axes)
    figure.suptitle(f"sets of {monitor.rule}", fontsize=9)
    return figure
