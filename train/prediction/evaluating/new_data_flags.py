"""The flags --images, --table and --features: new labelled data, and what goes with them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from absl import flags

from train.configuration.datasets import HOW_GROUPS_ARE_FOUND
from train.foundation import fields
from train.foundation.errors import UserError
from train.foundation.flag_rules import Exclusive, Flag, Row
from train.foundation.flag_types import path_of
from train.prediction import rule_flags
from train.prediction.evaluating.measures import Measures
from train.workdir import run_files

# So that --help shows the flags as flags of the command.
flags.disclaim_key_flags()

NAMES = ("images", "table", "features")
ROWS: tuple[Row, ...] = (
    Exclusive(NAMES),
    Flag("images", fields.text("a folder")),
    *(Flag(name, fields.text("a file")) for name in ("table", "features", "thresholds")),
    *(
        Flag(
            name,
            needs=("workdir", "features_run", "weights", "program"),
            excludes=("split", "calibration"),
            because="new data have neither splits nor other examples",
        )
        for name in NAMES
    ),
    Flag("classes", needs=NAMES, because="a list of classes has no examples"),
    Flag(
        "features_run",
        needs=("images", "table"),
        because="its own rows are evaluated with --workdir",
    ),
    Flag("group", fields.text(), needs=NAMES),
    Flag("recalibrate", fields.one_of(("half",)), needs=NAMES),
    Flag("thresholds", needs=NAMES, because="a split has thresholds from validation"),
    Flag("thresholds", excludes=("recalibrate",), because="it makes new thresholds"),
    Flag("combine", excludes=NAMES, because="new data are evaluated example by example"),
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked about new data.

    Attributes:
        flag: the flag that names the data: "images", "table" or "features".
        path: its value.
        group: how groups are found; None for the usual ways.
        measures: what is measured.
        taxonomy: what is above the classes of a program, as --taxonomy has it; None for what its
            description has.
        is_half: whether thresholds are calibrated on one half of the data.
        thresholds: a file with thresholds.
        calibration_out: the file for new thresholds.
    """

    flag: str
    path: Path
    group: str | None
    measures: Measures
    taxonomy: str | None
    is_half: bool
    thresholds: Path | None
    calibration_out: Path | None

    @property
    def place(self) -> Path:
        """The absolute path of the data."""
        return Path(os.path.normpath(self.path.expanduser().absolute()))

    def report_in(self, workdir: Path) -> Path:
        """The file in the workdir for the report.

        Raises:
            UserError: it has the report on other data.
        """
        out = run_files.new_evaluation(workdir, self.place.name, recalibrated=self.is_half)
        other = run_files.data_of_new_evaluation(out)
        if other not in (None, str(self.place)):
            raise UserError(f"{out} has the evaluation of {other}: give --out, or delete it")
        return out


def define() -> Callable[[Measures, str | None, Path | None], Asked | None]:
    """Defines the flags.

    Returns:
        A function that returns what they ask for, after they are parsed, from what is measured,
        --taxonomy and --calibration_out; None without new data.
    """
    data = (
        flags.DEFINE_string(
            "images",
            None,
            "new labelled images instead of a split: a folder with a folder for each class, as for "
            "configs/images.py.",
        ),
        flags.DEFINE_string(
            "table",
            None,
            "instead of --images: a table with the columns path and label, as for "
            "configs/images.py, and optionally group. Its splits are not used.",
        ),
        flags.DEFINE_string(
            "features",
            None,
            "instead of --images, for a run on features: an .npz file, or a folder of .npy files, "
            "with the arrays features and labels, as for configs/features.py.",
        ),
    )
    group = flags.DEFINE_string(
        "group",
        None,
        "how the groups of the new data are found, such as the photographs of one plant: with "
        f"--images {HOW_GROUPS_ARE_FOUND}; by default as in the run. With --table or --features "
        "the column or the array of the groups; by default group, if there is one.",
    )
    recalibrate = flags.DEFINE_string(
        "recalibrate",
        None,
        "half: thresholds are calibrated on one half of the new data, and the other half is "
        "evaluated. A group is in one half.",
    )
    thresholds = rule_flags.define_thresholds()

    def asked(
        measures: Measures, taxonomy: str | None, calibration_out: Path | None
    ) -> Asked | None:
        for flag in data:
            if flag.value is not None:
                return Asked(
                    flag=flag.name,
                    path=Path(flag.value),
                    group=group.value,
                    measures=measures,
                    taxonomy=taxonomy,
                    is_half=recalibrate.value is not None,
                    thresholds=path_of(thresholds),
                    calibration_out=calibration_out,
                )
        return None

    return asked
