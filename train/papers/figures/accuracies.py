"""Top-K against average-K accuracy, by run."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from train.papers.figures import selection
from train.reports import figure_style
from train.reports.metric import Average, Metric
from train.run.runs import StoredRun


def top_against_average(runs: Sequence[StoredRun], *, k: int) -> Figure:
    """One point per run: over all test images, and as the mean over classes. Seeds look alike."""
    by_label = selection.by_label(runs)
    figure = figure_style.new_figure(9.5, 3.8)
    panels = figure.subplots(1, 2)
    averages: dict[Average, str] = {
        "micro": "over all test images",
        "macro": "macro: mean over the classes",
    }
    for axes, (average, title) in zip(panels, averages.items(), strict=True):
        shown = (Metric.accuracy("average", k, average), Metric.accuracy("top", k, average))
        for index, (label, seeds) in enumerate(by_label.items()):
            x, y = np.array(
                [[selection.test_metric(run, metric.name) for metric in shown] for run in seeds]
            ).T
            look = figure_style.point_look(index)
            axes.plot(x, y, linestyle="", mew=1.5, ms=7, label=label, **look)
        figure_style.limit_to_shares(axes)
        figure_style.draw_diagonal(axes)
        figure_style.show_as_percent(axes.xaxis, axes.yaxis)
        axes.set_title(title, fontsize=9)
        figure_style.finish(
            axes,
            x_label=f"test average-{k} accuracy",
            y_label=f"test top-{k} accuracy",
        )
    figure_style.legend_beside(figure, panels[0])
    return figure
