"""Draws a figure: `python -m train.figures --figure=level_sets --k=2 --out=level_sets.png`.

Those of runs take `--workdirs=A,B,C` or `--runs=FOLDER`, and runs of one data set.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import flags
from matplotlib.figure import Figure

from train import command_line, fields, files, terminal
from train.errors import UserError
from train.figures import accuracies, curves, learning, level_sets, runs, set_sizes, style


@dataclass(frozen=True)
class Kind:
    """A figure of the command.

    Attributes:
        what: what it shows, and its numbers in the thesis.
        draw: draws it.
        options: the flags that it takes beside `--out`, with their values where they are left out.
        of_runs: whether it is drawn from runs, which are then its first argument.
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

_FIGURE = flags.DEFINE_string(
    "figure",
    None,
    "What to draw; numbers are those of the thesis. "
    + "; ".join(f"{name}: {kind.what}" for name, kind in FIGURES.items())
    + ".",
)
_OUT = flags.DEFINE_string(
    "out", None, f"The file to write; its suffix is one of {', '.join(style.SUFFIXES)}."
)
_WORKDIRS = flags.DEFINE_list("workdirs", None, "The workdirs of the runs to draw.")
_RUNS = flags.DEFINE_string(
    "runs", None, "A folder of workdirs, in place of --workdirs: all that have a finished run."
)
_OPTIONS: dict[str, flags.FlagHolder] = {
    "k": flags.DEFINE_integer("k", None, "K: 1 or 2 in level sets; by default 5 in others."),
    "metric": flags.DEFINE_string(
        "metric", None, "The metric to draw, as in results.json: average_5_accuracy, for one."
    ),
    "field": flags.DEFINE_string(
        "field", None, "The field of the configuration on the axis, such as dataset.batch_size."
    ),
}


def main() -> None:
    """Draws the figure that the flags name."""
    if _FIGURE.value is None:
        raise UserError(f"--figure is needed: it must be one of {', '.join(FIGURES)}")
    if wrong := fields.one_of(FIGURES)(_FIGURE.value):
        raise UserError(f"--figure must be {wrong}; got {_FIGURE.value!r}")
    kind = FIGURES[_FIGURE.value]
    out = _out()
    options = _options(kind)
    drawn = _runs() if kind.of_runs else None
    figure = kind.draw(**options) if drawn is None else kind.draw(drawn, **options)
    files.write_whole(out, style.encode(figure, out.suffix))
    terminal.show_line(f"wrote {out}" + ("" if drawn is None else f"; runs drawn: {len(drawn)}"))


def _out() -> Path:
    suffixes = ", ".join(style.SUFFIXES)
    if not _OUT.value:
        raise UserError(f"--out is needed: a file that ends in one of {suffixes}")
    out = Path(_OUT.value).expanduser()
    if out.suffix not in style.SUFFIXES:
        raise UserError(f"--out must end in one of {suffixes}; got {_OUT.value!r}")
    if not out.parent.is_dir():
        raise UserError(f"--out must be a file in a folder that is there; there is no {out.parent}")
    return out


def _options(kind: Kind) -> dict[str, Any]:
    given = {name: flag.value for name, flag in _OPTIONS.items() if flag.value is not None}
    runs_given = {
        name: flag.value
        for name, flag in (("workdirs", _WORKDIRS), ("runs", _RUNS))
        if flag.value is not None and not kind.of_runs
    }
    for name in given | runs_given:
        if name not in kind.options:
            raise UserError(f"--{name} says nothing to --figure={_FIGURE.value}")
    return kind.options | given


def _runs() -> list[runs.Run]:
    workdirs, folder = _WORKDIRS.value, _RUNS.value
    if (workdirs is None) == (folder is None):
        raise UserError(
            f"--figure={_FIGURE.value} needs either --workdirs=A,B,C or --runs=FOLDER, and not both"
        )
    if folder is not None:
        return runs.find(folder)
    if not workdirs or not all(workdirs):
        raise UserError("--workdirs must be workdirs with commas between; one is empty")
    return runs.read(workdirs)


if __name__ == "__main__":
    command_line.run(main)
