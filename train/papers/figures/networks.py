"""Networks beside each other, numbered as in the thesis (Figures 3.5, 3.6, 3.8 and 3.9)."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.papers.figures import tested
from train.papers.figures.tested import Tested
from train.papers.networks import NETWORKS
from train.reports import figure_style
from train.reports.metric import Metric
from train.training.losses import find_loss

_PLANTS, _IMAGENET = "plantnet300k", "imagenet"
_IN_WORDS = {_PLANTS: "Pl@ntNet-300K", _IMAGENET: "ImageNet"}
_CROSS_ENTROPY = "cross_entropy"
# In inches, of the figure, of its margins and of an entry of the legend.
_WIDTH, _LEAST_HEIGHT, _MARGINS, _ENTRY = 7.5, 4.0, 0.5, 0.165
# In inches, of a row of the figure with a row for each network.
_ROW = 0.22


def micro_and_macro(results: Sequence[Tested], *, k: int, loss: str) -> Figure:
    """The top-K and the macro top-K accuracy on Pl@ntNet-300K, a row for each network (3.5).

    Raises:
        UserError: there are no results on that data set with that loss.
    """
    metrics = [Metric.accuracy("top", k, average) for average in ("micro", "macro")]
    found = [_accuracies(results, _PLANTS, metric, loss) for metric in metrics]
    rows = numbers(list(found[0]))
    figure = figure_style.new_figure(_WIDTH, max(_LEAST_HEIGHT, 2 * _MARGINS + _ROW * len(rows)))
    axes = figure.subplots()
    places = np.arange(len(rows))
    for index, (metric, accuracies) in enumerate(zip(metrics, found, strict=True)):
        values = [accuracies[name] for name in rows]
        look = figure_style.point_look(index)
        axes.plot(values, places, linestyle="", mew=1.5, ms=6, label=metric.in_words, **look)
    # The gap between the two is what the figure shows.
    left, right = ([accuracies[name] for name in rows] for accuracies in found)
    axes.hlines(places, left, right, color=figure_style.REFERENCE_COLOR, lw=0.8, zorder=0)
    axes.set_yticks(places, [f"{name}  {number}" for name, number in rows.items()], fontsize=8)
    axes.invert_yaxis()
    axes.set_title(_IN_WORDS[_PLANTS], fontsize=9)
    figure_style.show_as_percent(axes.xaxis)
    figure_style.finish(axes, x_label="test accuracy", y_label="")
    figure_style.legend_beside(figure, axes)
    return figure


def on_two_data_sets(results: Sequence[Tested], *, metric: str, loss: str) -> Figure:
    """A metric on Pl@ntNet-300K over that on ImageNet, a point for each network (3.6, 3.8a).

    Networks with results on only one of the two are named and left out.

    Raises:
        UserError: no network has results on both, or the metric is not an accuracy.
    """
    shown = Metric.parse(metric)
    if not shown.is_accuracy:
        raise UserError(field="--metric", must_be="an accuracy", got=metric)
    on_imagenet, on_plants = (
        _accuracies(results, dataset, shown, loss) for dataset in (_IMAGENET, _PLANTS)
    )
    figure, axes = _scatter(_pairs(on_imagenet, on_plants, (f"on {_IMAGENET}", f"on {_PLANTS}")))
    return _finish(
        figure,
        axes,
        x_label=f"{_IN_WORDS[_IMAGENET]} test {shown.in_words}",
        y_label=f"{_IN_WORDS[_PLANTS]} test {shown.in_words}",
    )


def average_against_top(results: Sequence[Tested], *, k: int, loss: str) -> Figure:
    """The macro average-K over the macro top-K accuracy on Pl@ntNet-300K, by network (3.8b).

    Raises:
        UserError: there are no results on that data set with that loss.
    """
    top, average = (Metric.accuracy(rule, k, "macro") for rule in ("top", "average"))
    x, y = (_accuracies(results, _PLANTS, metric, loss) for metric in (top, average))
    figure, axes = _scatter({network: (x[network], y[network]) for network in x})
    figure_style.draw_diagonal(axes)
    axes.set_title(_IN_WORDS[_PLANTS], fontsize=9)
    return _finish(figure, axes, x_label=f"test {top.in_words}", y_label=f"test {average.in_words}")


def against_cross_entropy(results: Sequence[Tested], *, k: int, loss: str) -> Figure:
    """The top-K accuracy on Pl@ntNet-300K with a loss over that with cross-entropy (3.9).

    Networks with results of only one of the two are named and left out.

    Raises:
        UserError: no network has results of both, or the loss is the cross-entropy.
    """
    if loss == _CROSS_ENTROPY:
        raise UserError(field="--loss", must_be="another loss", got=loss)
    top = Metric.accuracy("top", k)
    x, y = (_accuracies(results, _PLANTS, top, name) for name in (_CROSS_ENTROPY, loss))
    figure, axes = _scatter(_pairs(x, y, (f"of {_CROSS_ENTROPY}", f"of {loss}")))
    figure_style.draw_diagonal(axes)
    axes.set_title(f"{_IN_WORDS[_PLANTS]}: test {top.in_words}", fontsize=9)
    titles = [find_loss(name).title for name in (_CROSS_ENTROPY, loss)]
    return _finish(figure, axes, x_label=titles[0], y_label=titles[1])


def numbers(networks: Sequence[str]) -> dict[str, int]:
    """The numbers of networks, in their order: the thesis' numbers, then others by name."""
    others = sorted(set(networks) - set(NETWORKS))
    number = {name: index for index, name in enumerate((*NETWORKS, *others), start=1)}
    return {name: number[name] for name in sorted(networks, key=lambda name: number[name])}


def _accuracies(
    results: Sequence[Tested], dataset: str, metric: Metric, loss: str
) -> dict[str, float]:
    found = tested.by_network(results, dataset, metric.name, loss=loss)
    if not found:
        raise UserError(
            f"the figure needs test results of {loss} on {dataset}, and there are none: finished "
            "runs have them, and in --runs=FOLDER what python -m train.evaluate --model=NAME "
            f"--weights=FILE --dataset={dataset} --out=FOLDER/{dataset}-NAME.json writes of "
            "networks trained with cross_entropy"
        )
    return found


def _pairs(
    x: Mapping[str, float], y: Mapping[str, float], words: tuple[str, str]
) -> dict[str, tuple[float, float]]:
    """The points of the networks that have both; the others are named.

    Args:
        x: the values of the networks at the lower axis.
        y: their values at the left axis.
        words: what `x` and `y` are, in messages.

    Raises:
        UserError: no network has both.
    """
    points = {network: (value, y[network]) for network, value in x.items() if network in y}
    listed = [
        f"{', '.join(alone)} only {word}"
        for word, found in zip(words, (x, y), strict=True)
        if (alone := [network for network in found if network not in points])
    ]
    if not points:
        raise UserError(f"no network has both results of the figure: {'; '.join(listed)}")
    if listed:
        show_line(f"not drawn, because the other result is missing: {'; '.join(listed)}")
    return points


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
