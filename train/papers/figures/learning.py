"""The learning curves of finished runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from train.foundation.errors import UserError
from train.reports import figure_style
from train.reports.metric import LOSS, Metric
from train.run import curves
from train.run.runs import StoredRun


def learning_curves(runs: Sequence[StoredRun], *, metric: str | None) -> Figure:
    """The curves of one run as the run draws them itself, or one line for each of several runs.

    Args:
        runs: at least one run.
        metric: the metric of the validation split. By default the metric that selected the epoch of
            the first run; a single run is then drawn with its top-K accuracies as well.

    Raises:
        UserError: a run did not log a complete epoch, or did not log the metric.
    """
    lines = {_name(run, runs): run.metrics() for run in runs}
    steps_per_epoch = {name: _steps_per_epoch(name, lines[name]) for name in lines}
    wanted = metric or str(runs[0].fields.get("select_by"))
    for name, of_run in lines.items():
        if not any(wanted in line for line in of_run if line["split"] == "validation"):
            raise UserError(f"metrics.jsonl in {name} has no validation metric {wanted!r}")
    shown = Metric.parse(wanted)
    if len(runs) > 1:
        selected = {_name(run, runs): run.results["best_epoch"] for run in runs}
        return _compare_runs(
            lines,
            selected=selected,
            select_by=[run.fields.get("select_by") for run in runs],
            steps_per_epoch=steps_per_epoch,
            metric=shown,
        )
    [run], [name] = runs, lines
    ks = run.fields.get("eval.ks", ()) if metric is None else ()
    accuracies = [Metric.accuracy("top", k) for k in ks]
    if shown not in (LOSS, *accuracies):
        accuracies.append(shown)
    return curves.learning_curves(
        lines[name],
        steps_per_epoch=steps_per_epoch[name],
        best_epoch=run.results["best_epoch"],
        select_by=Metric.parse(str(run.fields.get("select_by"))),
        accuracies=accuracies,
    )


def _compare_runs(
    lines: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    selected: Mapping[str, int],
    select_by: Sequence[Any],
    steps_per_epoch: Mapping[str, int],
    metric: Metric,
) -> Figure:
    """The training loss and a validation metric over the epochs, with one line per run."""
    figure = figure_style.new_figure(11, 4)
    panels = figure.subplots(1, 2)
    # Losses are comparable only with the same loss; the metric is comparable between all.
    drawn = (("train", LOSS, "training"), ("validation", metric, "validation"))
    for axes, (split, shown, words) in zip(panels, drawn, strict=True):
        for index, run in enumerate(lines):
            of_split = [line for line in lines[run] if line["split"] == split]
            epochs, values = curves.curve(of_split, shown.name, steps_per_epoch[run])
            look = figure_style.line_look(index)
            axes.plot(epochs, values, **look, markevery=curves.mark_every(epochs), label=run)
        if shown.is_accuracy:
            figure_style.show_as_percent(axes.yaxis)
        figure_style.count_whole(axes.xaxis)
        figure_style.finish(axes, x_label="epoch", y_label=f"{words} {shown.in_words}")
    for index, run in enumerate(lines):
        of_epoch = [
            line
            for line in lines[run]
            if line["split"] == "validation" and line["epoch"] == selected[run]
        ]
        epochs, values = curves.curve(of_epoch, metric.name, steps_per_epoch[run])
        color = figure_style.line_look(index)["color"]
        panels[1].plot(epochs, values, "o", ms=12, mfc="none", mec=color, mew=1.5)
    metrics = dict.fromkeys(Metric.parse(str(one)).in_words for one in select_by)
    figure.suptitle(f"ring: the epoch selected by {' or '.join(metrics)}", fontsize=9)
    figure_style.legend_beside(figure, panels[0])
    return figure


def _name(run: StoredRun, runs: Sequence[StoredRun]) -> str:
    """The name of the folder of a run, or its path if another run has that name."""
    path = run.workdir.resolve()
    alone = sum(other.workdir.resolve().name == path.name for other in runs) == 1
    return path.name if alone else str(run.workdir)


def _steps_per_epoch(name: str, lines: Sequence[dict[str, Any]]) -> int:
    for line in lines:
        if line.get("split") == "validation" and line.get("epoch"):
            return int(line["step"] // line["epoch"])
    raise UserError(f"metrics.jsonl in {name} has no finished epoch")
