"""Lorenz curves of the training images of data sets over their classes (thesis, Figure 3.2)."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from train.foundation.errors import UserError
from train.reports import figure_style
from train.run import run_folder
from train.run.runs import StoredRun

# The share of the classes that the thesis names.
_NAMED = 0.8


def by_data_set(runs: Sequence[StoredRun]) -> Figure:
    """The share of the images that the rarest classes have, a line for each data set.

    Runs with one data set and equal classes are one line.

    Raises:
        UserError: the file of the classes of a run is missing or damaged.
    """
    figure = figure_style.new_figure(7.5, 4)
    axes = figure.subplots()
    for index, (name, counts) in enumerate(_counts_by_data_set(runs).items()):
        classes, images = curve(counts)
        look = figure_style.line_look(index)
        every = max(1, len(classes) // 10)
        label = f"{name}: {len(counts):,} classes,\n{_in_words(classes, images)}"
        axes.plot(classes, images, **look, markevery=every, label=label)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    figure_style.draw_diagonal(axes)
    figure_style.show_as_percent(axes.xaxis, axes.yaxis)
    figure_style.finish(
        axes,
        x_label="share of the classes, from the rarest on",
        y_label="share of the training images",
    )
    figure_style.legend_beside(figure, axes)
    return figure


def curve(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points of a Lorenz curve: shares of the classes and of the images, [L + 1] both."""
    images = np.cumsum([0, *np.sort(counts)])
    return np.arange(len(counts) + 1) / len(counts), images / images[-1]


def _in_words(classes: np.ndarray, images: np.ndarray) -> str:
    share = float(np.interp(_NAMED, classes, images))
    return f"{_NAMED:.0%} of them have {share:.1%}"


def _counts_by_data_set(runs: Sequence[StoredRun]) -> dict[str, np.ndarray]:
    """The training images of each class, by the name of the data set.

    Data sets of one name with other counts, such as folders, have the names of their runs too.

    Raises:
        UserError: the file of the classes of a run is missing or damaged, or counts no image.
    """
    found: dict[str, dict[tuple[int, ...], str]] = {}
    for run in runs:
        counts = run_folder.read_classes(run.workdir).training_images
        if not any(counts):
            raise UserError(
                f"{run.workdir / run_folder.CLASSES} has no training image of any class"
            )
        found.setdefault(run.fields["dataset.name"], {}).setdefault(counts, run.workdir.name)
    return {
        name if len(by_counts) == 1 else f"{name} ({workdir})": np.array(counts)
        for name, by_counts in found.items()
        for counts, workdir in by_counts.items()
    }
