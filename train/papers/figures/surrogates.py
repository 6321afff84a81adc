"""The 0-1 loss of two classes and the losses that are minimized in its place (thesis, Figure 2.2).

The logistic loss is drawn as it is printed, with the natural logarithm. So it is below the 0-1 loss
at margins from -0.54 to 0; divided by log 2 it would be an upper bound.
"""

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from train.reports import figure_style

# The margins f(x) y, where y is -1 or 1.
_LEFT, _RIGHT = -2.0, 2.0
_HIGHEST = 4.0

SURROGATES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "hinge, max(0, 1 - t)": lambda margins: np.maximum(0.0, 1.0 - margins),
    "exponential, exp(-t)": lambda margins: np.exp(-margins),
    "logistic, log(1 + exp(-t))": lambda margins: np.logaddexp(0.0, -margins),
}


def by_loss() -> Figure:
    """A line for each loss over the margin."""
    figure = figure_style.new_figure(7, 4)
    axes = figure.subplots()
    # Two points at 0: a margin of 0 is a mistake, and the step is a vertical line.
    steps = ([_LEFT, 0.0, 0.0, _RIGHT], [1.0, 1.0, 0.0, 0.0])
    axes.plot(*steps, color=figure_style.REFERENCE_COLOR, lw=1.5, label="0-1, 1 if t ≤ 0")
    margins = np.linspace(_LEFT, _RIGHT, 401)
    for index, (name, loss) in enumerate(SURROGATES.items()):
        look = figure_style.line_look(index)
        axes.plot(margins, loss(margins), **look, markevery=50, label=name)
    axes.set_xlim(_LEFT, _RIGHT)
    axes.set_ylim(-0.05, _HIGHEST)
    figure_style.finish(axes, x_label="margin t = f(x) y, with y = -1 or 1", y_label="loss")
    figure_style.legend_beside(figure, axes)
    return figure
