"""Draws a figure: `python -m train.figures --figure=level_sets --k=2 --out=level_sets.png`.

Those of runs take `--workdirs=A,B,C` or `--runs=FOLDER`, and runs of one data set.
"""

from absl import flags

from train.foundation import command_line, flag_types
from train.papers.figures.catalogue import FIGURES, SUFFIXES

_FIGURE = flags.DEFINE_string(
    "figure",
    None,
    "What to draw; numbers are those of the thesis. "
    + "; ".join(f"{name}: {kind.what}" for name, kind in FIGURES.items())
    + ".",
)
_OUT = flags.DEFINE_string(
    "out", None, f"The file to write; its suffix is one of {', '.join(SUFFIXES)}."
)
_WORKDIRS = flags.DEFINE_list("workdirs", None, "The workdirs of the runs to draw.")
_RUNS = flags.DEFINE_string(
    "runs", None, "A folder of workdirs, in place of --workdirs: all that have a finished run."
)
_OPTIONS: dict[str, flags.FlagHolder] = {
    "k": flag_types.define_whole_number("k", "K: 1 or 2 in level sets; by default 5 in others."),
    "metric": flags.DEFINE_string(
        "metric",
        None,
        "The metric to draw, as results.json calls it; by default average_5_accuracy over a field, "
        "and in learning curves the one that selected.",
    ),
    "field": flags.DEFINE_string(
        "field",
        None,
        "The field of the configuration on the axis, such as dataset.batch_size; by default "
        "loss.alpha.",
    ),
}


def main() -> None:
    """Draws the figure that the flags name."""
    from train.papers.figures.drawing import draw

    draw(
        _FIGURE.value,
        _OUT.value,
        workdirs=_WORKDIRS.value,
        folder=_RUNS.value,
        options={name: flag.value for name, flag in _OPTIONS.items() if flag.value is not None},
    )


if __name__ == "__main__":
    command_line.run(main)
