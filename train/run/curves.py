"""The learning curves of a run as a figure; nothing is written here."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from train.reports import figure_style
from train.reports.metric import LOSS, Metric


def learning_curves(
    lines: Sequence[Mapping[str, Any]],
    *,
    steps_per_epoch: int,
    best_epoch: int,
    select_by: Metric,
    accuracies: Iterable[Metric],
) -> Figure:
    """Loss and accuracies over the epochs, in training and validation.

    Args:
        lines: the lines of `metrics.jsonl`, in order.
        steps_per_epoch: the steps of one epoch.
        best_epoch: the selected epoch, counted from 1; marked if it is among the lines.
        select_by: the validation metric that selected it; named above the curves.
        accuracies: the validation accuracies to draw, beside the training accuracy.
    """
    training = [line for line in lines if line["split"] == "train"]
    validation = [line for line in lines if line["split"] == "validation"]
    figure = figure_style.new_figure(10, 5)
    loss_axes, accuracy_axes = figure.subplots(1, 2)
    panels: list[tuple[Axes, str, list[Metric]]] = [
        (loss_axes, "loss", [LOSS]),
        (accuracy_axes, "accuracy", list(accuracies)),
    ]
    best = [line for line in validation if line["epoch"] == best_epoch]
    for axes, label, in_validation in panels:
        # The training steps have a loss and an accuracy of these names.
        epochs, values = curve(training, label, steps_per_epoch)
        color = figure_style.COLORS[0]
        axes.plot(epochs, values, "--", color=color, lw=1, label=f"training {label}")
        for index, metric in enumerate(in_validation, start=1):
            epochs, values = curve(validation, metric.name, steps_per_epoch)
            look = {**figure_style.line_look(index), "linestyle": "-"}
            name = f"validation {metric.in_words}"
            axes.plot(epochs, values, **look, markevery=mark_every(epochs), label=name)
        for line in best:
            epoch = line["step"] / steps_per_epoch
            axes.axvline(epoch, color=figure_style.REFERENCE_COLOR, ls=":")
        if label == "accuracy":
            figure_style.show_as_percent(axes.yaxis)
        figure_style.count_whole(axes.xaxis)
        figure_style.finish(axes, x_label="epoch", y_label=label)
        figure_style.legend_below(axes)
    for line in best:
        value = f": {select_by.format(line[select_by.name])}" if select_by.name in line else ""
        figure.suptitle(
            f"dotted: epoch {best_epoch}, selected for the best validation "
            f"{select_by.in_words}{value}",
            fontsize=9,
        )
    return figure


def curve(
    lines: Sequence[Mapping[str, Any]], name: str, steps_per_epoch: int
) -> tuple[list[float], list[float]]:
    """The curve of a metric over the lines that have it.

    Returns:
        The epochs, in fractions, and the values; a missing value is NaN, which leaves a gap.
    """
    present = [line for line in lines if name in line]
    epochs = [line["step"] / steps_per_epoch for line in present]
    return epochs, [math.nan if line[name] is None else line[name] for line in present]


def mark_every(points: Sequence[float]) -> int:
    """The distance of markers on a line, so that they do not cover it."""
    return max(1, len(points) // 10)
