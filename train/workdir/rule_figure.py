"""A figure of conformal rules: how often their sets have the label, over how large they are."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from train.workdir import figure_style

_PANELS = {"coverage": "over all examples", "macro_coverage": "macro: mean over the classes"}


def coverage_over_size(rules: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Figure:
    """A line for each rule, with a point for each target coverage.

    Args:
        rules: what the sets of each rule are worth, by the coverage and the rule, as in a report.
    """
    figure = figure_style.new_figure(9.5, 3.8)
    panels = figure.subplots(1, 2)
    names = dict.fromkeys(name for by_rule in rules.values() for name in by_rule)
    for axes, (quantity, title) in zip(panels, _PANELS.items(), strict=True):
        for index, name in enumerate(names):
            sizes, shares = (
                [by_rule[name][column] for by_rule in rules.values()]
                for column in ("set_size", quantity)
            )
            axes.plot(sizes, shares, label=name, **figure_style.line_look(index))
        # From one class to thousands.
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        figure_style.show_as_percent(axes.yaxis)
        axes.set_title(title, fontsize=9)
        figure_style.finish(axes, x_label="mean set size", y_label=quantity.replace("_", " "))
    figure_style.legend_beside(figure, panels[0])
    return figure
