"""Learning curves of one run or several; nothing is written here."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from train.evaluation.metric import LOSS, Metric
from train.workdir import figure_style


def learning_curves(
    lines: Sequence[Mapping[str, Any]],
    *,
    steps_per_epoch: int,
    best_epoch: int,
    accuracies: Iterable[Metric],
) -> Figure:
    """Loss and accuracies over the epochs, in training and validation.

    Args:
        lines: the lines of `metrics.jsonl`, in order.
        steps_per_epoch: the steps of one epoch.
        best_epoch: the selected epoch, counted from 1; marked where it is among the lines.
        accuracies: the validation accuracies to draw, beside that of training.
    """
    training = [line for line in lines if line["split"] == "train"]
    validation = [line for line in lines if line["split"] == "validation"]
    figure = figure_style.new_figure(10, 4)
    loss_axes, accuracy_axes = figure.subplots(1, 2)
    panels: list[tuple[Axes, str, list[Metric]]] = [
        (loss_axes, "loss", [LOSS]),
        (accuracy_axes, "accuracy", list(accuracies)),
    ]
    for axes, label, in_validation in panels:
        # The training steps have a loss and an accuracy of these names.
        epochs, values = _curve(training, label, steps_per_epoch)
        color = figure_style.COLORS[0]
        axes.plot(epochs, values, "--", color=color, lw=1, label=f"training {label}")
        for index, metric in enumerate(in_validation, start=1):
            epochs, values = _curve(validation, metric.name, steps_per_epoch)
            look = {**figure_style.line_look(index), "linestyle": "-"}
            axes.plot(epochs, values, **look, label=f"validation {metric.in_words}")
        for line in validation:
            if line["epoch"] == best_epoch:
                epoch = line["step"] / steps_per_epoch
                axes.axvline(
                    epoch,
                    color=figure_style.REFERENCE_COLOR,
                    ls=":",
                    label=f"best epoch ({best_epoch})",
                )
        if label == "accuracy":
            figure_style.show_as_percent(axes.yaxis)
        figure_style.finish(axes, x_label="epoch", y_label=label)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
    return figure


def compare_runs(
    lines: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    steps_per_epoch: Mapping[str, int],
    metric: Metric,
) -> Figure:
    """The training loss and a metric of validation over the epochs, a line for each run.

    Args:
        lines: by the name of each run, the lines of its `metrics.jsonl`, in order.
        steps_per_epoch: by the same names, the steps of one epoch.
        metric: of validation.
    """
    figure = figure_style.new_figure(11, 4)
    panels = figure.subplots(1, 2)
    # A loss is comparable with the same loss alone; the metric is with that of any.
    drawn = (("train", LOSS, "training"), ("validation", metric, "validation"))
    for axes, (split, shown, words) in zip(panels, drawn, strict=True):
        for index, run in enumerate(lines):
            of_split = [line for line in lines[run] if line["split"] == split]
            epochs, values = _curve(of_split, shown.name, steps_per_epoch[run])
            look = figure_style.line_look(index)
            axes.plot(epochs, values, **look, markevery=max(1, len(epochs) // 10), label=run)
        if shown.is_accuracy:
            figure_style.show_as_percent(axes.yaxis)
        figure_style.finish(axes, x_label="epoch", y_label=f"{words} {shown.in_words}")
    figure_style.legend_beside(figure, panels[0])
    return figure


def to_png(figure: Figure) -> bytes:
    """The figure as the content of a PNG file."""
    return figure_style.encode(figure, ".png")


def _curve(
    lines: Sequence[Mapping[str, Any]], name: str, steps_per_epoch: int
) -> tuple[list[float], list[float]]:
    """The epochs, in fractions, and the values; not-a-number, a gap, where there is no value."""
    present = [line for line in lines if name in line]
    epochs = [line["step"] / steps_per_epoch for line in present]
    return epochs, [math.nan if line[name] is None else line[name] for line in present]
