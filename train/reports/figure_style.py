"""The one look of all figures: colours, markers, lines, sizes, and what a file of them holds.

Colour is never the only distinction, no display is needed, and the same data give the same file.
"""

import io
import re
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator

from train.foundation.console import printable_lines

# The name of a clip path, both at its definition and at its uses.
_CLIP = re.compile(rb'(?<=clipPath id=")p[0-9a-f]{10}(?=")|(?<=url\(#)p[0-9a-f]{10}(?=\))')

# Okabe and Ito's colours, which colour-blind readers can distinguish; the yellow is too light.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# The numbers of colours, markers and lines do not have a common divisor: looks repeat late.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
REFERENCE_COLOR = "#555555"
# Perceptually even, and in order of lightness: the same order for colour-blind readers and in grey.
COLOR_MAP = "cividis"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches; the smallest text has 8 points."""
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def point_look(index: int) -> dict[str, Any]:
    """The look of the index-th of several groups of points: the first 16 differ without colour.

    The first eight are hollow, because points may cover each other.
    """
    color = COLORS[index % len(COLORS)]
    return {
        "color": color,
        "marker": _MARKERS[index % len(_MARKERS)],
        "markerfacecolor": color if _is_second_round(index) else "none",
    }


def line_look(index: int) -> dict[str, Any]:
    """The look of the index-th of several lines: the first 40 differ without colour.

    The markers of the first eight are filled.
    """
    look = point_look(index)
    return {
        **look,
        "linestyle": _LINES[index % len(_LINES)],
        "markerfacecolor": "white" if _is_second_round(index) else look["color"],
        "markersize": 5,
        "linewidth": 1.5,
    }


def _is_second_round(index: int) -> bool:
    """Whether all markers were used before, an odd number of times."""
    return index // len(_MARKERS) % 2 == 1


def finish(axes: Axes, *, x_label: str, y_label: str) -> None:
    """Labels the axes and draws a grid behind."""
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3)


def show_as_percent(*axes: Axis) -> None:
    """Labels axes of shares in [0, 1] in per cent."""
    for axis in axes:
        axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.4g}%"))


def count_whole(*axes: Axis) -> None:
    """Labels axes of counts at integers."""
    for axis in axes:
        axis.set_major_locator(MaxNLocator(integer=True))


def legend_below_all(figure: Figure, axes: Axes) -> None:
    """A legend of these axes below all axes of a figure, so that it hides no data."""
    handles, labels = axes.get_legend_handles_labels()
    # Handles long enough to show how a line is broken.
    figure.legend(
        handles, labels, loc="outside lower center", fontsize=8, handlelength=3.5, ncols=2
    )


def legend_below(axes: Axes) -> None:
    """A legend below the axes, so that it hides no data; nothing if no line has a name."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.14),
            fontsize=8,
            handlelength=3.5,
            ncols=2,
            frameon=False,
        )


def encode(figure: Figure, suffix: str) -> bytes:
    """The figure as the content of a file with the suffix: ".png", ".svg" or ".pdf"."""
    for text in figure.findobj(Text):
        # Names of runs and values of their fields are not formulas. The numbers at the axes, which
        # may be, are not there yet.
        text.set_text(printable_lines(text.get_text()).replace("$", r"\$"))
    # Otherwise these have the time of writing, and SVG random names.
    metadata = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[suffix]
    content = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "topk_jax"}):
        figure.savefig(content, format=suffix.removeprefix("."), metadata=metadata)
    return _with_counted_clips(content.getvalue()) if suffix == ".svg" else content.getvalue()


def _with_counted_clips(svg: bytes) -> bytes:
    """The figure with other names of its clip paths: matplotlib makes them of places in memory."""
    places = {name: place for place, name in enumerate(dict.fromkeys(_CLIP.findall(svg)))}
    return _CLIP.sub(lambda found: b"clip%d" % places[found[0]], svg)
