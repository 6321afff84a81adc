"""A figure of conformal rules: how often their sets have the label, and how large they are."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from train.workdir import figure_style

_SHARES = {"coverage": "coverage", "macro_coverage": "macro coverage: mean over the classes"}
_SIZE = {"set_size": "mean set size"}


def by_rule(rules: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Figure:
    """A row for each rule, so that rules with the same numbers are seen; a point for each target.

    Args:
        rules: what the sets of each rule are worth, by the coverage and the rule, as in a report.
    """
    names = list(dict.fromkeys(name for of_target in rules.values() for name in of_target))
    figure = figure_style.new_figure(11, 1.6 + 0.28 * len(names))
    panels = figure.subplots(1, 3, sharey=True, width_ratios=(1, 1.2, 1))
    for axes, (quantity, label) in zip(panels, (_SHARES | _SIZE).items(), strict=True):
        for index, (target, of_target) in enumerate(rules.items()):
            look = figure_style.point_look(index)
            shown = [place for place, name in enumerate(names) if name in of_target]
            values = [of_target[names[place]][quantity] for place in shown]
            words = f"asked: {100 * float(target):.4g}%"
            axes.plot(values, shown, **look, ls="none", ms=6, mew=1.5, label=words)
            if quantity in _SHARES:
                axes.axvline(float(target), color=look["color"], ls="--", lw=1)
        figure_style.finish(axes, x_label=label, y_label="")
    for axes in panels[:2]:
        figure_style.show_as_percent(axes.xaxis)
    # Sizes are from one class to thousands.
    panels[2].set_xscale("log")
    panels[2].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panels[2].xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
    panels[2].xaxis.set_minor_locator(NullLocator())
    # The first rule is at the top, with half a row of space at both ends.
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    figure_style.legend_beside(figure, panels[0])
    return figure
