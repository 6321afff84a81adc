"""Networks beside each other, numbered as in the thesis (Figure 3.8)."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from train.evaluation.metric import Metric
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.papers.figures import tested
from train.papers.figures.tested import Tested
from train.papers.networks import NETWORKS
from train.workdir import figure_style

_PLANTS, _IMAGENET = "plantnet300k", "imagenet"
_IN_WORDS = {_PLANTS: "Pl@ntNet-300K", _IMAGENET: "ImageNet"}
_TOP_1 = Metric.accuracy("top", 1, "macro")
_TOP_5 = Metric.accuracy("top", 5, "macro")
_AVERAGE_5 = Metric.accuracy("average", 5, "macro")
# In inches, of the figure, of its margins and of an entry of the legend.
_WIDTH, _LEAST_HEIGHT, _MARGINS, _ENTRY = 7.5, 4.0, 0.5, 0.165


def on_two_data_sets(results: Sequence[Tested]) -> Figure:
    """The macro top-1 accuracy on Pl@ntNet-300K over that on ImageNet, a point for each network.

    Networks with results on only one of the two are named and left out.

    Raises:
        UserError: no network has results on both.
    """
    on_imagenet, on_plants = (
        _accuracies(results, dataset, _TOP_1) for dataset in (_IMAGENET, _PLANTS)
    )
    points = {
        network: (accuracy, on_plants[network])
        for network, accuracy in on_imagenet.items()
        if network in on_plants
    }
    listed = [
        f"on {dataset} alone {', '.join(alone)}"
        for dataset, found in ((_IMAGENET, on_imagenet), (_PLANTS, on_plants))
        if (alone := [network for network in found if network not in points])
    ]
    if not points:
        raise UserError(
            f"no network has results on both data sets of the figure: {'; '.join(listed)}"
        )
    if listed:
        show_line(f"not drawn, for want of results on the other data set: {'; '.join(listed)}")
    figure, axes = _scatter(points)
    return _finish(
        figure,
        axes,
        x_label=f"{_IN_WORDS[_IMAGENET]} test {_TOP_1.in_words}",
        y_label=f"{_IN_WORDS[_PLANTS]} test {_TOP_1.in_words}",
    )


def average_against_top(results: Sequence[Tested]) -> Figure:
    """The macro average-5 over the macro top-5 accuracy on Pl@ntNet-300K, a point for each network.

    Raises:
        UserError: there are no results on that data set.
    """
    x, y = (_accuracies(results, _PLANTS, metric) for metric in (_TOP_5, _AVERAGE_5))
    figure, axes = _scatter({network: (x[network], y[network]) for network in x})
    figure_style.draw_diagonal(axes)
    axes.set_title(_IN_WORDS[_PLANTS], fontsize=9)
    return _finish(
        figure, axes, x_label=f"test {_TOP_5.in_words}", y_label=f"test {_AVERAGE_5.in_words}"
    )


def numbers(networks: Sequence[str]) -> dict[str, int]:
    """The numbers of networks, in their order: the thesis' numbers, then others by name."""
    others = sorted(set(networks) - set(NETWORKS))
    number = {name: index for index, name in enumerate((*NETWORKS, *others), start=1)}
    return {name: number[name] for name in sorted(networks, key=lambda name: number[name])}


def _accuracies(results: Sequence[Tested], dataset: str, metric: Metric) -> dict[str, float]:
    found = tested.by_network(results, dataset, metric.name)
    if not found:
        raise UserError(
            f"the figure needs test results on {dataset}, and there are none: finished runs have "
            "them, and in --runs=FOLDER what python -m train.evaluate --model=NAME --weights=FILE "
            f"--dataset={dataset} --out=FOLDER/{dataset}-NAME.json writes"
        )
    return found


def _scatter(points: Mapping[str, tuple[float, float]]) -> tuple[Figure, Axes]:
    height = max(_LEAST_HEIGHT, _MARGINS + _ENTRY * (len(points) + 1))
    figure = figure_style.new_figure(_WIDTH, height)
    axes = figure.subplots()
    for name, number in numbers(list(points)).items():
        look = figure_style.point_look(number - 1)
        label = f"{number}  {name}"
        axes.plot(*points[name], linestyle="", mew=1.5, ms=6, label=label, **look)
        right, up = _away_from_nearest(points, name)
        axes.annotate(
            str(number),
            points[name],
            (4 if right else -4, 3 if up else -3),
            textcoords="offset points",
            ha="left" if right else "right",
            va="bottom" if up else "top",
            fontsize=8,
        )
    figure_style.limit_to_shares(axes)
    return figure, axes


def _away_from_nearest(points: Mapping[str, tuple[float, float]], name: str) -> tuple[bool, bool]:
    """Whether the number of a point is right of it, and above it, to be read beside the nearest."""
    others = np.array([point for other, point in points.items() if other != name])
    if not others.size:
        return True, True
    spread = np.maximum(np.ptp(list(points.values()), axis=0), np.finfo(float).tiny)
    offsets = (np.array(points[name]) - others) / spread
    right, up = offsets[np.hypot(*offsets.T).argmin()] >= 0
    return bool(right), bool(up)


def _finish(figure: Figure, axes: Axes, *, x_label: str, y_label: str) -> Figure:
    figure_style.show_as_percent(axes.xaxis, axes.yaxis)
    figure_style.finish(axes, x_label=x_label, y_label=y_label)
    figure_style.legend_beside(figure, axes)
    return figure
