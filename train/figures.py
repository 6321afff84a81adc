"""Draws a figure: `python -m train.figures --figure=level_sets --k=2 --out=level_sets.png`.

Those of runs take `--workdirs=A,B,C` or `--runs=FOLDER`, and runs of one data set.
"""

from absl import flags

from train.foundation import command
from train.papers.figures.catalogue import FIGURES
from train.run.output_files import FIGURE_SUFFIXES

_FIGURE = flags.DEFINE_string(
    "figure",
    None,
    "What to draw; numbers are those of the thesis. "
    + "; ".join(f"{name}: {kind.what}" for name, kind in FIGURES.items())
    + ".",
)
_OUT = flags.DEFINE_string(
    "out", None, f"The file to write; its suffix is one of {', '.join(FIGURE_SUFFIXES)}."
)
_WORKDIRS = flags.DEFINE_list("workdirs", None, "The workdirs of the runs to draw.")
_RUNS = flags.DEFINE_string(
    "runs", None, "A folder of workdirs, in place of --workdirs: all that have a finished run."
)
_OPTIONS: dict[str, flags.FlagHolder] = {
    "k": flags.DEFINE_integer(
        "k",
        None,
        "K: 1 or 2 in level sets; by default 1 in networks_micro_and_macro, and 5 in others.",
    ),
    "metric": flags.DEFINE_string(
        "metric",
        None,
        "The metric to draw, as results.json calls it; by default average_5_accuracy over a field, "
        "macro_top_1_accuracy on two data sets, and in learning curves the one that selected.",
    ),
    "split": flags.DEFINE_string(
        "split",
        None,
        "Over a field or the batch size: validation, the default, for the best value over the "
        "epochs, or test, for the value of the selected epoch.",
    ),
    "loss": flags.DEFINE_string(
        "loss",
        None,
        "The loss of the networks to draw; by default cross_entropy, and in networks_by_loss "
        "smooth_top_k_hinge.",
    ),
    "scores": flags.DEFINE_list(
        "scores",
        None,
        "In expert: the files of the networks, which train.evaluate --out=FILE.npz wrote; a row "
        "has the name of its file.",
    ),
    "expert": flags.DEFINE_string(
        "expert",
        None,
        "In expert: a table with the columns path and label, the name of an image and a class that "
        "the expert names; an image has several rows, or labels with semicolons between. By "
        "default the published expert, and a draw of images of the two published genera.",
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
    command.run(main)
