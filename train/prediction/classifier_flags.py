"""The flags that name a classifier: a finished run, or a published network and its classes."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import flags

from train.foundation import fields, flag_rules, flag_types
from train.foundation.errors import UserError
from train.foundation.flag_rules import Exclusive, Flag, Needed
from train.prediction.rule_flags import ChosenRule
from train.workdir import run_inputs

# So that --help shows the flags as flags of the command.
flags.disclaim_key_flags()


@dataclass(frozen=True, kw_only=True)
class ChosenClassifier:
    """The classifier that the flags choose; None stands for a flag that is not given.

    Attributes:
        workdir: the folder of a finished run; the other fields are then not needed.
        features_run: instead of `workdir`, the folder of a finished run on features, which is
            joined with the network that made the features: in `weights`, if the run does not know
            where it is.
        weights: instead of `workdir`, a file of the weights of a published network.
        model: the name of the network; None to find it by the number of its parameters.
        dataset: the name of the data set whose classes the head is for.
        data_dir: the folder of all prepared data sets.
        path: with `workdir`, the present place of the run's own images, table or features.
        classes: instead of a data set, a file with one class name per line.
        image_size: with `classes` or `features_run`, the height and width of the images; None for
            the size that the network was published for.
        normalization: the normalization of the images; None for the network's own.
        taxonomy: what is above the classes, as `config.dataset.taxonomy`; None for what the run or
            the data set has.
    """

    workdir: str | None = None
    features_run: str | None = None
    weights: str | None = None
    model: str | None = None
    dataset: str | None = None
    data_dir: str | None = None
    path: str | None = None
    classes: str | None = None
    image_size: int | None = None
    normalization: str | None = None
    taxonomy: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The values of the flags that are given, by their names."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def files(self) -> dict[Path, str]:
        """The files that it is read from or was trained on, to be kept, with names for messages."""
        named = {
            **{"weights": self.weights, "classes": self.classes, "path": self.path},
            "taxonomy": self.taxonomy,
        }
        given = {
            Path(path).expanduser(): f"the file of --{flag}"
            for flag, path in named.items()
            if path is not None
        }
        for run in (self.workdir, self.features_run):
            given |= {} if run is None else run_inputs.of_run(Path(run))
        return given

    def check(self) -> None:
        """Refuses flags that are missing, or that exclude each other.

        Raises:
            UserError: some are, or do.
        """
        flag_rules.check(RULES, self.given)

    @property
    def places(self) -> dict[str, str]:
        """The fields of `config.dataset` of a run for the current place of its data."""
        given = {"path": self.path, "data_dir": self.data_dir}
        return {field: place for field, place in given.items() if place is not None}

    def check_rule(self, rule: ChosenRule) -> None:
        """Refuses a rule with a threshold if there are no images to calibrate it on.

        Raises:
            UserError: the rule has a threshold and there are no such images.
        """
        if self.classes is not None and rule.is_calibrated and rule.thresholds is None:
            raise UserError(
                f"--{rule.name} needs --dataset, on whose validation images it is calibrated; "
                "--classes has no images"
            )


NAMES = tuple(one.name for one in dataclasses.fields(ChosenClassifier))


def _needing(name: str, *needs: str, because: str = "") -> Flag:
    may_be = None if name == "image_size" else fields.text()
    return Flag(name, may_be, needs, because=because)


RULES: tuple[flag_rules.Row, ...] = (
    Exclusive(("workdir", "weights")),
    Exclusive(("workdir", "features_run")),
    _needing("workdir"),
    _needing("features_run"),
    _needing(
        "path", "workdir", "features_run", because="it is the new place of the data of the run"
    ),
    *(_needing(name, "weights") for name in ("model", "dataset", "classes", "normalization")),
    Exclusive(("dataset", "classes")),
    Flag("features_run", excludes=("dataset", "classes"), because="the run has its classes"),
    _needing("data_dir", "workdir", "dataset"),
    _needing(
        *("taxonomy", "workdir", "weights", "features_run"),
        because="it describes the classes of a network",
    ),
    _needing(
        "image_size", "classes", "features_run", because="a data set has its own size of images"
    ),
    _needing(
        "weights",
        *("dataset", "classes", "features_run"),
        because="they give the classes; train.evaluate takes --classes only with new data",
    ),
    Needed(
        ("workdir", "features_run", "weights"),
        "the folder of a finished run, or a file of the weights of a network",
    ),
)


def define() -> Callable[[], ChosenClassifier]:
    """Defines the flags.

    Returns:
        A function that returns their values after they are parsed.
    """
    texts = {
        "workdir": "The folder of a finished run. This or --weights is needed.",
        "weights": "Instead of --workdir: a file of the weights of a network with its head, of "
        "safetensors or torch.save. With --features_run: the network that made the features, also "
        "as the folder of a run.",
        "model": "With --weights: the name of the network, as in config.model.name; needed if the "
        "file fits several.",
        "dataset": "With --weights: the data set that the network was trained on, prepared by "
        "train.prepare. It gives the classes, and the validation images to calibrate on.",
        "data_dir": "With --dataset: the folder of all prepared data sets; by default "
        "~/tensorflow_datasets. With --workdir: where it is now, if it was moved.",
        "path": "With --workdir: where the images, the table or the features of the run are now, "
        "if they were moved.",
        "normalization": "With --weights: what the colours of images are normalized by: imagenet, "
        "halves (to -1 to 1), clip or dataset; by default what the network was published with.",
        "classes": "Instead of --dataset: a file with one class name per line, in UTF-8, in the "
        "order of the network's outputs.",
        "taxonomy": "The taxonomy of the classes, if the run has none: a table with a column for "
        "each rank, from the classes up or from the top down, or first_word, the genera of names "
        "of species.",
        "features_run": "Instead of --workdir: the folder of a finished run on features, to be "
        "used with images and the network that made the features. The run knows that network if "
        "train.embed made them. Otherwise, or if it was moved, --weights names it.",
    }
    holders: dict[str, flags.FlagHolder[Any]] = {
        name: flags.DEFINE_string(name, None, text) for name, text in texts.items()
    }
    holders["image_size"] = flag_types.define_integer(
        "image_size",
        "With --classes or --features_run: the height and width of the images for the network; by "
        "default as it was published.",
        lower_bound=1,
    )
    return lambda: ChosenClassifier(**{name: holder.value for name, holder in holders.items()})
