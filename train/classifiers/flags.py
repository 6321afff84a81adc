"""The nine flags that name a classifier."""

import dataclasses
import functools
import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import flags

from train.foundation import files, kinds
from train.foundation.errors import UserError, errors_told
from train.foundation.flags import Flag, Needed, Row, check, declare

# So that --help shows the flags as flags of the command.
flags.disclaim_key_flags()

_TEXTS = {
    "workdir": "The folder of a finished run. This or --weights is needed.",
    "weights": "A file of the weights of a network with its head, of safetensors or torch.save; or "
    "a program of train.export. With --workdir of a run on features: the network that made them, "
    "also as the folder of a run.",
    "model": "the name of the network, as in config.model.name; needed if the file fits several.",
    "dataset": "the data set that the network was trained on, prepared by train.prepare. It gives "
    "the classes, and the validation images to calibrate on.",
    "data": "where the data of the run are now, if they were moved; with --dataset, the folder of "
    "all prepared data sets, by default ~/tensorflow_datasets.",
    "classes": "A file with one class name per line, in UTF-8, in the order of the network's "
    "outputs: with --weights instead of a data set, with --workdir instead of the run's names.",
    "normalization": "what the colours of images are normalized by: imagenet, halves (to -1 to 1), "
    "clip or dataset; by default what the network was published with.",
    "taxonomy": "The taxonomy of the classes, if the run has none: a table with a column for each "
    "rank, from the classes up or from the top down, or first_word, the genera of names of "
    "species.",
}


@dataclass(frozen=True, kw_only=True)
class ChosenClassifier:
    """The classifier that the flags choose, by their values; None for those that are not given."""

    workdir: str | None = None
    weights: str | None = None
    model: str | None = None
    dataset: str | None = None
    data: str | None = None
    classes: str | None = None
    image_size: int | None = None
    normalization: str | None = None
    taxonomy: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The values of the flags that are given, by their names."""
        return {name: value for name in NAMES if (value := getattr(self, name)) is not None}

    @property
    def files(self) -> dict[Path, str]:
        """The files that it is read from, to be kept, with names for messages."""
        return {
            Path(self.given[name]).expanduser(): f"the file of --{name}"
            for name in ("weights", "classes", "data", "taxonomy")
            if name in self.given
        }

    @functools.cached_property
    def is_program(self) -> bool:
        """Whether a file is given, beside which is the description of a program."""
        if self.weights is None:
            return False
        try:
            # An export of weights has a description without a rule.
            return "rule" in json.loads(Path(f"{self.weights}.json").expanduser().read_bytes())
        except OSError:
            return False
        except ValueError:  # Its reader tells what is wrong.
            return True

    def class_names(self, number: int | None = None) -> tuple[str, ...] | None:
        """The names in the file of --classes, one a line; None without the flag.

        Args:
            number: how many there must be; None for any number.

        Raises:
            UserError: the file cannot be read, a line of it is blank, or it has another number.
        """
        if (path := self.classes) is None:
            return None
        with errors_told(f"--classes {path} cannot be read"):
            text = files.read_text(Path(path))
        # splitlines would split at further characters. Editors on Windows write other line ends.
        names = [line.strip() for line in re.split("\r\n?|\n", text.rstrip())]
        for line, name in enumerate(names, start=1):
            if not name:
                raise UserError(f"--classes {path}: line {line} is blank, and must have a name")
        if number not in (None, len(names)):
            must = f"must have a line for each of the {number} classes"
            raise UserError(f"--classes {must}; {path} has {len(names)}")
        return tuple(unicodedata.normalize("NFC", name) for name in names)

    def check(self, **others: object) -> None:
        """Refuses flags that are missing, or that exclude each other.

        Args:
            others: the values of further flags of the command that are not for a program.

        Raises:
            UserError: some are, or do.
        """
        check(_ROWS, self.given)
        if not self.is_program:
            check(_OF_WEIGHTS, self.given)
            return
        for name, value in {**self.given, **others}.items():
            if value is not None and name not in ("weights", "taxonomy"):
                raise UserError(
                    f"--{name} must be left out: --weights={self.weights} is a program, which has "
                    "its own"
                )


NAMES = tuple(one.name for one in dataclasses.fields(ChosenClassifier))
_ROWS: tuple[Row, ...] = (
    *(Flag(name, kinds.TEXT) for name in _TEXTS),
    Needed(("workdir", "weights"), "the folder of a finished run, or a file of weights"),
    Flag("dataset", excludes=("workdir", "classes")),
    *(Flag(name, needs=("weights",)) for name in ("model", "dataset", "normalization")),
    Flag("image_size", needs=("weights",)),
    Flag("image_size", excludes=("dataset",), because="a data set has its own size of images"),
    Flag("data", needs=("workdir", "dataset")),
)
_OF_WEIGHTS = (
    Flag(
        "weights",
        needs=("dataset", "classes", "workdir"),
        because="they give the classes; a program has FILE.json beside it",
    ),
    *(Flag(name, exists=True) for name in ("workdir", "weights")),
)


def define() -> Callable[[], ChosenClassifier]:
    """Defines the flags.

    Returns:
        A function that returns their values after they are parsed.
    """
    holders: dict[str, flags.FlagHolder[Any]] = {
        name: flags.DEFINE_string(name, None, text) for name, text in _TEXTS.items()
    }
    holders["image_size"] = flags.DEFINE_integer(
        "image_size",
        None,
        "the height and width of the images for the network; by default as it was published.",
        lower_bound=1,
    )
    declare(*_ROWS)
    return lambda: ChosenClassifier(**{name: holder.value for name, holder in holders.items()})
