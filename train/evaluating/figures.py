"""Figures of an evaluation: the sets of rules, and which classes are taken for which."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from train.reports import figure_style
from train.reports.examples import ExampleTable

_PANELS = {
    "coverage": "coverage",
    "macro": "macro coverage (mean over classes)",
    "set_size": "mean set size",
}
_MOST_CLASSES = 40


def of_rules(rows: Mapping[str, Mapping[str, Any]]) -> Figure:
    """A line for each rule: its coverages, with a stroke at what it promises, and its mean size.

    Args:
        rows: the rows of a report by the texts of their rules.
    """
    figure = figure_style.new_figure(11, 1.6 + 0.28 * len(rows))
    panels = figure.subplots(1, 3, sharey=True)
    places = np.arange(len(rows))
    promised = [row.get("promised") for row in rows.values()]
    for axes, (name, label) in zip(panels, _PANELS.items(), strict=True):
        values = np.array([row.get(name) for row in rows.values()], float)
        axes.plot(values, places, **figure_style.point_look(0), ls="none", ms=6, mew=1.5)
        if name != "set_size":
            figure_style.show_as_percent(axes.xaxis)
        figure_style.finish(axes, x_label=label, y_label="")
    low, high = np.transpose([row["interval"] for row in rows.values()])
    stroke = {"ls": "none", "marker": "|", "ms": 14, "mew": 1.5, "color": "black"}
    panels[0].plot(np.array(promised, float), places, **stroke)
    panels[0].hlines(places, low, high, color=figure_style.COLORS[0], lw=1)
    # Sizes are from one class to thousands.
    panels[2].set_xscale("log")
    panels[2].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panels[2].xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
    panels[2].xaxis.set_minor_locator(NullLocator())
    # The first rule is at the top, with half a row of space at both ends.
    panels[0].set_yticks(places, list(rows))
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    return figure


def of_confusions(table: ExampleTable) -> Figure:
    """The share of the examples of each class for which each class is the likeliest.

    Of many classes, those that are confused most often are shown.
    """
    number = table.examples.num_classes
    confused = np.zeros(number)
    for pair in table.confusions:
        confused[[pair.label, pair.predicted]] += pair.examples
    chosen = np.sort(np.argsort(-confused, kind="stable")[:_MOST_CLASSES])
    counts = table.confusion_matrix(chosen.tolist())
    totals = np.bincount(table.examples.labels, minlength=number)[chosen]
    figure = figure_style.new_figure(3 + 0.2 * len(chosen), 2 + 0.2 * len(chosen))
    axes = figure.subplots()
    shares = counts / np.maximum(totals, 1)[:, None]
    image = axes.imshow(shares, cmap=figure_style.COLOR_MAP, vmin=0, vmax=1)
    names = [table.class_names[index] for index in chosen]
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    of_all = "" if len(chosen) == number else f" ({len(chosen)} of {number:,} classes)"
    axes.set_xlabel(f"likeliest class{of_all}")
    axes.set_ylabel("label")
    figure_style.show_as_percent(figure.colorbar(image, ax=axes).ax.yaxis)
    return figure
