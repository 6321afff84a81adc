"""The figure of a monitor: the coverage so far, and the evidence that something changed."""

import math

import numpy as np
from matplotlib.figure import Figure

from topk_jax import metrics
from train.monitoring.monitor import Monitor
from train.workdir import figure_style


def draw(monitor: Monitor) -> Figure:
    """The coverage with its interval at all times, and the evidence of both tests."""
    count, misses, broken, changed = monitor.curve.points.T
    figure = figure_style.new_figure(10, 5)
    left, right = figure.subplots(1, 2)
    look = figure_style.line_look(0)
    if len(count):
        hits = (count - misses).astype(int)
        low, high = metrics.anytime_interval(hits, count.astype(int))
        left.fill_between(
            count,
            np.asarray(low),
            np.asarray(high),
            color=look["color"],
            alpha=0.2,
            lw=0,
            label="95% at all times together",
        )
        left.plot(count, hits / count, color=look["color"], label="coverage so far")
    promise = monitor.promise
    left.axhline(promise.coverage, color=figure_style.REFERENCE_COLOR, ls="--", label="promised")
    left.axhline(
        1 - promise.allowed_error(), color=figure_style.REFERENCE_COLOR, ls=":", label="allowed"
    )
    figure_style.show_as_percent(left.yaxis)
    for index, (name, values, at) in enumerate(
        (
            ("promise broken", broken, monitor.broken_at),
            ("scores changed", changed, monitor.changed_at),
        )
    ):
        color = figure_style.line_look(index)["color"]
        right.plot(count, values / math.log(10), color=color, label=name)
        if at is not None:
            right.axvline(at, color=color, ls=":", label=f"alarm at {at:,}")
    right.axhline(
        promise.log_needed / math.log(10),
        color=figure_style.REFERENCE_COLOR,
        ls="--",
        label="alarm",
    )
    for axes, label in ((left, "coverage"), (right, "evidence, as a power of 10")):
        figure_style.finish(axes, x_label="outcomes", y_label=label)
        figure_style.legend_below(axes)
    figure.suptitle(f"sets of {promise.rule}", fontsize=9)
    return figure
