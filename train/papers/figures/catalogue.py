"""The figures by name, with the options of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from train.foundation import fields, files
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.papers.figures import accuracies, curves, learning, level_sets, selection, set_sizes
from train.workdir import figure_style
from train.workdir.runs import Run


@dataclass(frozen=True)
class Kind:
    """A figure of the command.

    Attributes:
        what: what it shows, and its number in the thesis.
        draw: draws it.
        options: the flags that it has beside `--out`, with their default values.
        of_runs: whether it is drawn from runs, which are then the first argument of `draw`.
    """

    what: str
    draw: Callable[..., Figure]
    options: dict[str, Any]
    of_runs: bool = True


FIGURES = {
    "level_sets": Kind(
        "level sets of every loss (4.1 with K = 2; 4.6 with K = 1)",
        level_sets.by_loss,
        {"k": 2},
        of_runs=False,
    ),
    "level_sets_by_samples": Kind(
        "level sets of the noised loss for several M (4.4)", level_sets.by_samples, {}, False
    ),
    "level_sets_by_epsilon": Kind(
        "level sets of the noised loss for several ε (4.5)", level_sets.by_epsilon, {}, False
    ),
    "top_against_average": Kind(
        "top-K against average-K accuracy, by run (3.8)", accuracies.top_against_average, {"k": 5}
    ),
    "gradient_sparsity": Kind(
        "non-zero gradient coordinates in the first epoch over ε (4.2)",
        curves.gradient_sparsity,
        {},
    ),
    "epoch_time": Kind("time of an epoch over K, by loss (4.3)", curves.epoch_time, {}),
    "set_sizes": Kind("histograms of set sizes, by loss (5.4)", set_sizes.by_loss, {"k": 5}),
    "set_sizes_by_shot": Kind(
        "histograms of set sizes, by loss and shot (5.4)", set_sizes.by_shot, {"k": 5}
    ),
    "metric_against_field": Kind(
        "a test metric over a field of the configuration (5.5, 5.6)",
        curves.metric_against_field,
        {"metric": "average_5_accuracy", "field": "loss.alpha"},
    ),
    "learning_curves": Kind(
        "loss and metric over the epochs, of one run or several",
        learning.learning_curves,
        {"metric": None},
    ),
}


def draw(
    name: str | None,
    out: str | None,
    *,
    workdirs: Sequence[str] | None,
    folder: str | None,
    options: Mapping[str, Any],
) -> None:
    """Draws a figure and writes it.

    Args:
        name: the name of the figure.
        out: the file.
        workdirs: the workdirs of the runs to draw.
        folder: in place of `workdirs`, a folder whose finished runs are all drawn.
        options: the other flags that are given, by name.

    Raises:
        UserError: an argument is wrong; the message names its flag.
    """
    if name is None:
        raise UserError(f"--figure is needed: it must be one of {', '.join(FIGURES)}")
    if wrong := fields.one_of(FIGURES)(name):
        raise UserError(f"--figure must be {wrong}; got {name!r}")
    kind = FIGURES[name]
    path = _file(out)
    given = {**options, "workdirs": workdirs, "runs": folder}
    for option in (option for option, value in given.items() if value is not None):
        if option not in kind.options and not (kind.of_runs and option in ("workdirs", "runs")):
            raise UserError(f"--{option} says nothing to --figure={name}")
    settings = {**kind.options, **options}
    drawn = _runs(name, workdirs, folder) if kind.of_runs else []
    figure = kind.draw(drawn, **settings) if kind.of_runs else kind.draw(**settings)
    files.write_whole(path, figure_style.encode(figure, path.suffix))
    show_line(f"wrote {path}" + (f"; runs drawn: {len(drawn)}" if drawn else ""))


def _file(out: str | None) -> Path:
    suffixes = ", ".join(figure_style.SUFFIXES)
    if not out:
        raise UserError(f"--out is needed: a file that ends in one of {suffixes}")
    path = Path(out).expanduser()
    if path.suffix not in figure_style.SUFFIXES:
        raise UserError(f"--out must end in one of {suffixes}; got {out!r}")
    if not path.parent.is_dir():
        raise UserError(f"--out must be in a folder that exists; there is no {path.parent}")
    return path


def _runs(name: str, workdirs: Sequence[str] | None, folder: str | None) -> list[Run]:
    if (workdirs is None) == (folder is None):
        raise UserError(
            f"--figure={name} needs either --workdirs=A,B,C or --runs=FOLDER, and not both"
        )
    if folder is not None:
        return selection.find(folder)
    if not workdirs or not all(workdirs):
        raise UserError("--workdirs must be workdirs with commas between; one is empty")
    return selection.read(workdirs)
