"""What the flags of `train.evaluate` ask for, and the files that it writes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from train.classifiers.flags import ChosenClassifier
from train.foundation.errors import UserError
from train.workdir import output_files, run_files

# The first is the default.
SPLITS = ("test", "validation", "train", "balanced_test")
# The flags of new data.
DATA = ("images", "features")
VALIDATION, HALF = "validation", "half"
PAGE, CONFUSIONS = ".html", ".confusions.png"
# The files beside a page or a table of examples.
_BESIDE = (".csv", ".classes.csv", ".confusions.csv", CONFUSIONS)
_OUT = (".json", ".csv", ".npz", *output_files.FIGURE_SUFFIXES)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is evaluated, and how.

    Attributes:
        chosen: the classifier; without flags for `scores`.
        scores: instead of a classifier, a file of scores.
        split: the split, without new data.
        data: the flag of new data, one of `DATA`, and its value; None without new data.
        group: how the groups of new data are found; None for the usual ways.
        sets: the texts of the rules; empty for the usual ones.
        calibration: `VALIDATION`, `HALF` or a file; None for the default.
        full: whether everything is shown.
    """

    chosen: ChosenClassifier
    scores: Path | None
    split: str
    data: tuple[str, Path] | None
    group: str | None
    sets: tuple[str, ...]
    calibration: str | Path | None
    full: bool

    @property
    def place(self) -> Path | None:
        """The absolute path of the new data."""
        if self.data is None:
            return None
        return Path(os.path.normpath(self.data[1].expanduser().absolute()))


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The files that are written.

    Attributes:
        out: files by their suffixes: the report, its rows, the scores, figures.
        examples: the page of the examples, or their table; None for neither.
        limits: the file of the fitted limits; None for no file.
    """

    out: tuple[Path, ...]
    examples: Path | None
    limits: Path | None


def read_calibration(value: str | None, *, is_of_scores: bool) -> str | Path | None:
    """What --calibration asks for.

    Raises:
        UserError: it is not what it may be for a classifier, or for scores.
    """
    own, suffix = (HALF, ".npz") if is_of_scores else (f"{VALIDATION}, {HALF}", ".npz, .json")
    if value is None or value in own.split(", "):
        return value
    if Path(value).suffix in suffix.split(", "):
        return Path(value)
    must_be = f"one of {own}, or a file whose suffix is one of {suffix}"
    raise UserError(field="--calibration", must_be=must_be, got=value)


def check_outputs(
    asked: Asked, out: Sequence[str], examples: Path | None, limits: Path | None
) -> Outputs:
    """The files to write, if all can be written.

    Raises:
        UserError: one cannot, or would replace another file.
    """
    read = {"scores": asked.scores, "calibration": asked.calibration}
    if asked.data is not None:
        read |= dict([asked.data])
    kept = asked.chosen.files | {
        path: f"what --{name} is read from" for name, path in read.items() if isinstance(path, Path)
    }

    def check(flag: str, path: Path, *suffixes: str) -> Path:
        output_files.checked(flag, path, kept, suffixes=suffixes)
        kept[path] = f"another file of --{flag}"
        return path

    found = [check("out", Path(path), *_OUT) for path in out]
    if len({path.suffix for path in found}) < len(found):
        raise UserError(
            field="--out", must_be="one file with each suffix", got=" and ".join(map(str, found))
        )
    if limits is not None:
        check("calibration_out", limits, ".json")
    if examples is not None:
        check("examples", examples, PAGE, ".csv")
        for suffix in _BESIDE:
            if suffix != examples.suffix:
                check("examples", examples.with_suffix(suffix))
    if asked.chosen.workdir is not None and not any(path.suffix == ".json" for path in found):
        found.append(_report_in(Path(asked.chosen.workdir), asked))
    return Outputs(out=tuple(found), examples=examples, limits=limits)


def _report_in(workdir: Path, asked: Asked) -> Path:
    """The file in the folder of a run for the report.

    Raises:
        UserError: it has the report on other data, or cannot be written.
    """
    if asked.place is None:
        out = run_files.evaluation(workdir, asked.split)
    else:
        out = run_files.new_evaluation(
            workdir, asked.place.name, recalibrated=asked.calibration == HALF
        )
        if run_files.data_of_new_evaluation(out) not in (None, str(asked.place)):
            other = run_files.data_of_new_evaluation(out)
            raise UserError(f"{out} has the evaluation of {other}: give --out, or delete it")
    output_files.refuse_protected_folders("out", out)
    return out
