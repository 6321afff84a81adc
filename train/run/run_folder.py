"""The files in the folder of a run: their names, what the program relies on in them, readers."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from train.configuration import Config
from train.data.classes import Classes
from train.data.taxonomy import ClassTree
from train.foundation import files
from train.foundation.errors import UserError, within

if TYPE_CHECKING:
    # Commands import this module before they need JAX or read images.
    from train.data import DatasetSpec
    from train.data.look import Seen

CONFIG = "config.json"
CLASSES = "classes.json"
# What is only known from the files of the data set, and what normalizes it.
DATA = "data.json"
# For a user's own images: what a look at each of them has found.
SEEN = "seen_images.json"
METRICS = "metrics.jsonl"
# Images that look like images of other splits; missing if there are none.
NEAR_DUPLICATES = "near_duplicates.csv"
RESULTS = "results.json"
CURVES = "learning_curves.png"
EVENTS = "tensorboard"
CHECKPOINTS = "checkpoints"
# Rules of sets with the limits that were fitted for the finished run.
SETS = "sets.json"
# Features of training examples, which outlier scores are distances to.
KNOWN_FEATURES = "known_features.npz"

# What a run keeps for itself, beside the files that `outcomes` names.
_OWN = frozenset(
    {
        *(CONFIG, CLASSES, DATA, SEEN, METRICS, RESULTS, CURVES, EVENTS, CHECKPOINTS),
        *(SETS, KNOWN_FEATURES, NEAR_DUPLICATES, files.LOCK),
    }
)

_Metrics = dict[str, float | None]


class _Config(msgspec.Struct):
    dataset: dict[str, Any]
    model: dict[str, Any]
    loss: dict[str, Any]
    optimizer: dict[str, Any] = {}


class _Results(msgspec.Struct):
    config: dict[str, Any]
    best_epoch: int
    best_step: int
    num_classes: int
    test: _Metrics
    validation: _Metrics = {}
    balanced_test: _Metrics = {}


class _Class(msgspec.Struct):
    name: str
    training_images: int
    ranks: dict[str, str] = {}


class _Data(msgspec.Struct):
    """The facts without the classes, which have a file of their own."""

    image_shape: tuple[int, ...]
    digest: str | None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    embedded_by: dict[str, Any] | None = None


class _Line(msgspec.Struct):
    step: int
    split: str
    epoch: int


@dataclass(frozen=True)
class Facts:
    """What is only known from the files of a data set, and how the run normalizes.

    Attributes:
        classes: the names of the classes and their numbers of training images.
        image_shape: height, width and channels of the images that the model gets; for features,
            only their number.
        digest: for a user's own files, a hash that changes if the files, labels or splits change.
        mean: the mean of each feature over the training rows. For images, the mean of each channel
            if the run does not normalize with the numbers of the data set, otherwise `None`.
        std: the standard deviation, like `mean`.
        embedded_by: the network that made the features, as `train.embed` describes it; `None` if it
            is not known, and for other data.
    """

    classes: Classes
    image_shape: tuple[int, ...]
    digest: str | None = None
    # Not compared: other machines may round them differently, and the digest covers the features.
    mean: tuple[float, ...] | None = field(default=None, compare=False)
    std: tuple[float, ...] | None = field(default=None, compare=False)
    # Not compared: the digest covers the features, and the network may be at another place.
    embedded_by: Mapping[str, Any] | None = field(default=None, compare=False)

    def are_of(self, others: "Facts") -> bool:
        """Whether other facts are of the same data, whatever is above the classes."""
        known = dataclasses.replace(others.classes, tree=self.classes.tree)
        return self == dataclasses.replace(others, classes=known)

    def complete(self, spec: "DatasetSpec") -> "DatasetSpec":
        """The data set with the shape of its examples, and the mean and deviation of the run."""
        if spec.image_shape is None:
            spec = spec.of_shape(self.image_shape)
        known: dict[str, Any] = {} if self.mean is None else {"mean": self.mean, "std": self.std}
        return dataclasses.replace(spec, **known)


def is_kept(path: Path) -> bool:
    """Whether a path is of what a run keeps for itself: evaluations may be replaced."""
    return any(
        (one.name in _OWN or (one.name.startswith("outcomes_") and one.suffix == ".npz"))
        and (one.parent / CONFIG).is_file()
        for one in (path, *path.parents)
    )


def has_checkpoints(workdir: Path) -> bool:
    """Whether there is a complete checkpoint."""
    folder = workdir / CHECKPOINTS
    return folder.is_dir() and any(path.name.isdigit() for path in folder.iterdir())


def evaluation(workdir: Path, name: str) -> Path:
    """The file in a workdir with the evaluation of a split, or of new data as "of_NAME"."""
    return workdir / f"evaluation_{name}.json"


def outcomes(workdir: Path, split: str) -> Path:
    """The file in a workdir with the outcomes of a test split."""
    return workdir / f"outcomes_{split}.npz"


def write_config(config: Config, workdir: Path) -> None:
    """Writes the configuration of a run; fields that may change have their last values."""
    files.write_whole(workdir / CONFIG, files.to_json(config.to_plain(), indent=2))


def write_facts(facts: Facts, workdir: Path) -> None:
    """Writes what a run keeps of its data set."""
    files.write_whole(workdir / CLASSES, files.to_json(facts.classes.to_plain(), indent=1))
    kept = {name: getattr(facts, name) for name in _Data.__struct_fields__}
    files.write_whole(workdir / DATA, files.to_json(kept, indent=1))


def read_config(workdir: Path) -> dict[str, Any] | None:
    """The configuration of the run in a workdir, nested; None if there is none."""
    return _all_of(workdir / CONFIG, _Config, "the configuration of a run")


def read_results(workdir: Path) -> dict[str, Any] | None:
    """The results of the run in a workdir; None if it is not finished."""
    with within(after="; delete it, and train.main writes it again"):
        return _all_of(workdir / RESULTS, _Results, "the results of a run")


def read_facts(workdir: Path) -> Facts:
    """What the run in a workdir keeps of its data set."""
    return Facts(read_classes(workdir), **msgspec.structs.asdict(_read_data(workdir)))


def _read(path: Path, type_: Any, what: str) -> Any:
    """What a run has written at its start, and has always."""
    if not path.exists():
        raise UserError(f"{path} is missing: it is {what}, and nothing else has that")
    return files.read(path, type_, what)


def read_digest(workdir: Path) -> str | None:
    """The digest of the files that the run in a workdir was trained on; None if it kept none."""
    return _read_data(workdir).digest if (workdir / DATA).exists() else None


def _read_data(workdir: Path) -> _Data:
    data: _Data = _read(workdir / DATA, _Data, "what a run keeps of its data")
    return data


def read_classes(workdir: Path) -> Classes:
    """The classes of the run in a workdir."""
    found: list[_Class] = _read(workdir / CLASSES, list[_Class], "the classes of a run")
    names = tuple(one.name for one in found)
    ranks = [one.ranks for one in found]
    tree = ClassTree.from_rows(ranks, names) if any(ranks) else None
    return Classes(names, tuple(one.training_images for one in found), tree)


def read_seen(workdir: Path) -> "Seen | None":
    """What the run in a workdir has seen of its images; None if it did not keep it."""
    from train.data.look import Seen  # noqa: PLC0415 (see above)

    path = workdir / SEEN
    with within(after="; delete it, and train.main looks at the images again"):
        return files.read(path, Seen, "what a run has seen") if path.exists() else None


def read_metrics(workdir: Path) -> list[dict[str, Any]]:
    """The lines of the metrics of a run, without one that was torn by a kill."""
    path = workdir / METRICS
    whole, _, _torn = path.read_bytes().rpartition(b"\n")
    try:
        lines = msgspec.json.Decoder(dict[str, Any]).decode_lines(whole)
        msgspec.convert(lines, list[_Line])
    except msgspec.DecodeError as error:
        raise UserError(f"{path} is damaged: {error}; delete it") from error
    return lines


def _all_of(path: Path, type_: type, what: str) -> dict[str, Any] | None:
    """All of a JSON object, if it has what the program relies on; None without the file."""
    if not path.exists():
        return None
    files.read(path, type_, what)
    return files.read(path, dict[str, Any], what)
