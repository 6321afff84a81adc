"""The flags --out, --scores_out, --examples and --figure: the files that an evaluation writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from absl import flags

from train.evaluation import example_files
from train.foundation import fields
from train.foundation.flag_rules import Flag
from train.foundation.flag_types import path_of
from train.workdir import output_files

# So that --help shows the flags as flags of the command.
flags.disclaim_key_flags()

NAMES = ("out", "scores_out", "figure", "calibration_out", "examples")
ROWS = (
    *(Flag(name, fields.text("a file")) for name in NAMES),
    Flag("calibration_out", needs=("recalibrate",), because="it saves new thresholds"),
    Flag("figure", needs=("rules",), because="it shows them"),
)
_SUFFIXES = {"figure": output_files.FIGURE_SUFFIXES, "examples": (".html", ".csv")}


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The files that are written; None for a file that is not asked for.

    Attributes:
        out: the report.
        scores_out: the scores of the examples.
        figure: the figure of the rules.
        calibration_out: the new thresholds.
        examples: the page of the examples, or their table.
    """

    out: Path | None
    scores_out: Path | None
    figure: Path | None
    calibration_out: Path | None
    examples: Path | None

    def check(self, kept: Mapping[Path, str]) -> None:
        """Refuses files that cannot be written, before anything is read.

        Args:
            kept: files and folders that must not be overwritten, and what messages call each.
        """
        kept = {**kept}
        for name in NAMES:
            path: Path | None = getattr(self, name)
            if path is not None:
                output_files.checked(name, path, kept, suffixes=_SUFFIXES.get(name, ()))
                kept[path] = f"the file of --{name}"
        # Tables are written beside the page, and one of them may be the file itself.
        for path in () if self.examples is None else example_files.paths(self.examples):
            if path != self.examples:
                output_files.checked("examples", path, kept)


def define() -> Callable[[], Outputs]:
    """Defines the flags.

    Returns:
        A function that returns the files after the flags are parsed.
    """
    out = flags.DEFINE_string(
        "out",
        None,
        "The file that the report is written to, as JSON; by default evaluation_SPLIT.json in the "
        "workdir, for new data evaluation_of_NAME.json with the name of the folder or file, and "
        "none without a workdir.",
    )
    scores_out = flags.DEFINE_string(
        "scores_out",
        None,
        "The .npz file that the scores, label and name of each example are written to; --scores "
        "reads it.",
    )
    figure = flags.DEFINE_string(
        "figure",
        None,
        "the file for a figure of their coverages over the mean sizes of their sets; its "
        f"suffix is one of {', '.join(output_files.FIGURE_SUFFIXES)}.",
    )
    calibration_out = flags.DEFINE_string(
        "calibration_out",
        None,
        "the file for these thresholds, for --thresholds of train.evaluate, train.predict and "
        "train.export.",
    )
    examples = flags.DEFINE_string(
        "examples",
        None,
        "An .html file for a page of the examples that are most wrong, of the classes and of their "
        "confusions, with three .csv files beside it; or a .csv file for these without a page.",
    )
    return lambda: Outputs(
        out=path_of(out),
        scores_out=path_of(scores_out),
        figure=path_of(figure),
        calibration_out=path_of(calibration_out),
        examples=path_of(examples),
    )
