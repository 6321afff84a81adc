"""Histograms of the sizes of average-K sets, by loss and by shot (thesis, Figure 5.4)."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topk_jax import metrics
from train.papers.figures import selection
from train.reports import figure_style
from train.reports.metric import SHOTS
from train.reports.outcomes import Outcomes
from train.run import run_folder
from train.run.runs import StoredRun

ALL = "all"
# The share of sets that the axis shows; the few larger sets are counted below it.
_SHOWN = 0.995
_COLUMNS = 4


def by_loss(runs: Sequence[StoredRun], *, k: int) -> Figure:
    """One histogram per loss. The first one is outlined in the others."""
    counts = set_size_counts(runs, k=k, shots=(ALL,))
    seeds = _numbers_of_seeds(runs)
    rows = -(-len(counts) // _COLUMNS)
    columns = -(-len(counts) // rows)
    figure, grid = _panels(rows, columns)
    panels = list(grid.flat)
    _, first = next(iter(counts.items()))
    for index, (axes, (label, by_shot)) in enumerate(zip(panels, counts.items(), strict=False)):
        _draw(axes, by_shot[ALL], figure_style.COLORS[0], "//", seeds[label])
        axes.set_title(label, fontsize=9)
        if index > 0:
            outline = first[ALL] / first[ALL].sum()
            axes.stairs(outline, np.arange(len(outline) + 1) - 0.5, color="black", lw=1, ls="--")
    for axes in panels[len(counts) :]:
        axes.set_visible(False)
    for axes in panels[max(0, len(counts) - columns) : len(counts)]:
        # There is no panel below these.
        axes.tick_params(labelbottom=True)
    _finish(figure, grid, [by_shot[ALL] for by_shot in counts.values()], k)
    if len(counts) > 1:
        figure.suptitle(f"dashed: {next(iter(counts))}", fontsize=9)
    return figure


def by_shot(runs: Sequence[StoredRun], *, k: int) -> Figure:
    """One row per loss, with histograms for its few, medium and many shot classes."""
    counts = set_size_counts(runs, k=k, shots=SHOTS)
    seeds = _numbers_of_seeds(runs)
    figure, grid = _panels(len(counts), len(SHOTS))
    hatches = ("//", "..", "\\\\")
    for row, (label, of_loss) in zip(grid, counts.items(), strict=True):
        for column, (axes, shot) in enumerate(zip(row, SHOTS, strict=True)):
            _draw(axes, of_loss[shot], figure_style.COLORS[column], hatches[column], seeds[label])
            axes.set_title(f"{label}: {shot} shot", fontsize=9)
    _finish(figure, grid, [one for of_loss in counts.values() for one in of_loss.values()], k)
    return figure


def set_size_counts(
    runs: Sequence[StoredRun], *, k: int, shots: Sequence[str]
) -> dict[str, dict[str, np.ndarray]]:
    """The number of examples by the size of their set, from size 0. Seeds are added up.

    Returns:
        The counts by the label of the runs and by shot.

    Raises:
        UserError: a run was not evaluated with this K, or runs of one label are not seeds of one
            experiment.
    """
    counts = {}
    for label, seeds in selection.by_label(runs).items():
        evaluated = [_counts(run, k, shots) for run in seeds]
        counts[label] = {shot: _add([one[shot] for one in evaluated]) for shot in shots}
    return counts


def _numbers_of_seeds(runs: Sequence[StoredRun]) -> dict[str, int]:
    return {label: len(seeds) for label, seeds in selection.by_label(runs).items()}


def _add(counts: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of counts; each ends with the largest set of its run."""
    longest = max(map(len, counts))
    return np.sum([np.pad(one, (0, longest - len(one))) for one in counts], axis=0)


def _counts(run: StoredRun, k: int, shots: Sequence[str]) -> dict[str, np.ndarray]:
    outcomes = Outcomes.read(run_folder.outcomes(run.workdir, "test"))
    sizes = outcomes.sizes(k)
    counts = {ALL: np.bincount(sizes)}
    if tuple(shots) == SHOTS:
        images = np.array(run_folder.read_classes(run.workdir).training_images)
        for shot, classes in metrics.shot_groups(images).items():
            counts[shot] = np.bincount(sizes[np.asarray(classes)[outcomes.labels]])
    return {shot: counts[shot] for shot in shots}


def _panels(rows: int, columns: int) -> tuple[Figure, np.ndarray]:
    figure = figure_style.new_figure(2.2 * columns + 0.8, 1.7 * rows + 0.7)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    return figure, grid


def _draw(axes: Axes, counts: np.ndarray, color: str, hatch: str, seeds: int) -> None:
    total = counts.sum()
    if total == 0:
        axes.text(0.5, 0.5, "no images", transform=axes.transAxes, ha="center", fontsize=8)
        return
    sizes = np.arange(len(counts))
    axes.bar(
        sizes, counts / total, width=1, color=color, alpha=0.6, hatch=hatch, ec="white", lw=0.3
    )
    mean = float(sizes @ counts / total)
    axes.axvline(mean, color=figure_style.REFERENCE_COLOR, ls=":", lw=1.2)
    images = f"{round(total / seeds):,} images" + (f", {seeds} seeds" if seeds > 1 else "")
    words = f"mean {mean:.2f}\n{images}"
    axes.text(0.97, 0.95, words, transform=axes.transAxes, ha="right", va="top", fontsize=8)


def _finish(figure: Figure, grid: np.ndarray, counts: Sequence[np.ndarray], k: int) -> None:
    filled = [one for one in counts if one.sum() > 0]
    last = max((_last_shown(one) for one in filled), default=1)
    for axes in grid.flat:
        axes.set_xlim(-0.6, last + 0.6)
        figure_style.count_whole(axes.xaxis)
        figure_style.show_as_percent(axes.yaxis)
        axes.tick_params(labelsize=8)
        axes.set_axisbelow(True)
        axes.grid(alpha=0.3)
    left_out = sum(int(one[last + 1 :].sum()) for one in filled)
    # On its own line: a figure of one panel is narrow.
    beyond = f"\nlarger sets, not shown: {left_out:,}" if left_out else ""
    figure.supxlabel(f"classes in the set of average size {k}{beyond}", fontsize=9)
    figure.supylabel("share of the test images", fontsize=9)


def _last_shown(counts: np.ndarray) -> int:
    return int(np.searchsorted(np.cumsum(counts), _SHOWN * counts.sum()))
