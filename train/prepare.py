"""Prepares a data set: `python -m train.prepare --dataset=plantnet300k --manual_dir=downloads`.

A second start goes on where the first one was stopped. Nothing is installed, and nothing but
CIFAR-100 is downloaded.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import tensorflow_datasets as tfds
from absl import flags, logging

from train import command_line, fields
from train.data import imagenet_lt, plantnet300k, preparation, tfds_preparation
from train.data.digits import Digits
from train.data.prepared import quiet_tfds
from train.data.progress import show_line
from train.data.synthetic_species import SyntheticSpecies
from train.errors import UserError

_BUILDERS: dict[str, Callable[..., tfds.core.DatasetBuilder]] = {
    "cifar100": functools.partial(tfds.builder, "cifar100"),
    "digits": Digits,
    "imagenet": functools.partial(tfds.builder, "imagenet2012"),
    "imagenet_lt": imagenet_lt.ImagenetLt,
    "plantnet300k": plantnet300k.Plantnet300k,
    "plantnet300k_v2": plantnet300k.Plantnet300kV2,
    "synthetic_species": SyntheticSpecies,
}

_DATASET = flags.DEFINE_string("dataset", None, f"The data set: one of {', '.join(_BUILDERS)}.")
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    None,
    "Where prepared data sets lie; by default the environment variable TFDS_DATA_DIR, or else "
    "~/tensorflow_datasets.",
)
_MANUAL_DIR = flags.DEFINE_string(
    "manual_dir",
    None,
    "The folder with the downloaded archives, or with what was in them; by default "
    "downloads/manual below the data directory.",
)
_SKIP_UNREADABLE = flags.DEFINE_boolean(
    "skip_unreadable",
    False,
    "Whether images that cannot be decoded are left out and counted; otherwise the first of them "
    "ends the preparation. Where tfds prepares the data set, images are not looked at.",
)


def main() -> None:
    """Prepares the data set that the flags name."""
    if _DATASET.value is None:
        raise UserError(f"--dataset is needed: it must be one of {', '.join(_BUILDERS)}")
    if wrong := fields.one_of(_BUILDERS)(_DATASET.value):
        raise UserError(f"--dataset must be {wrong}; got {_DATASET.value!r}")
    # Below errors, tfds tells that a new folder is empty.
    logging.set_verbosity(logging.ERROR)
    try:
        prepare(
            _DATASET.value,
            data_dir=_DATA_DIR.value,
            manual_dir=_MANUAL_DIR.value,
            skip_unreadable=_SKIP_UNREADABLE.value,
        )
    except KeyboardInterrupt:
        show_line("stopped; the same command goes on from here")
        sys.exit(130)


def prepare(
    name: str, *, data_dir: str | None, manual_dir: str | None, skip_unreadable: bool
) -> None:
    """Prepares a data set, unless it is prepared already, and says what is in it.

    Args:
        name: as on the command line.
        data_dir: where prepared data sets lie; `None` for tfds's own default.
        manual_dir: the folder with what was downloaded; `None` for tfds's own default.
        skip_unreadable: whether images that cannot be decoded are left out.
    """
    builder = _BUILDERS[name](data_dir=data_dir, file_format=preparation.FILE_FORMAT)
    if builder.is_prepared():
        show_line(f"{name} is prepared already, in {builder.data_dir}")
        return
    downloaded = (
        Path(manual_dir).expanduser().absolute()
        if manual_dir is not None
        else Path(builder.data_dir).parents[1] / "downloads" / "manual"
    )
    contents = None
    match name:
        case "cifar100":
            tfds_preparation.prepare_cifar100(builder, downloaded)
        case "imagenet":
            tfds_preparation.prepare_imagenet(builder, downloaded)
        case "imagenet_lt":
            contents = imagenet_lt.contents(downloaded, data_dir)
        case "plantnet300k" | "plantnet300k_v2":
            contents = plantnet300k.contents(type(builder), downloaded)
        case _:
            _generate(builder)
    skipped = {}
    if contents is not None:
        skipped = preparation.prepare(builder, contents, skip_unreadable=skip_unreadable)
    _summarize(name, builder, skipped)


def _generate(builder: tfds.core.DatasetBuilder) -> None:
    """Prepares a data set that needs no files."""
    try:
        with quiet_tfds():
            builder.download_and_prepare()
    except RuntimeError as error:  # How the writer reports a full disk.
        raise OSError(f"cannot prepare the data set in {builder.data_dir}: {error}") from error


def _summarize(name: str, builder: tfds.core.DatasetBuilder, skipped: dict[str, int]) -> None:
    splits = builder.info.splits
    counts = ", ".join(f"{splits[split].num_examples:,} {split}" for split in splits)
    num_classes = builder.info.features["label"].num_classes
    show_line(f"{name}: {num_classes:,} classes; images: {counts}")
    if any(skipped.values()):
        left_out = ", ".join(f"{number:,} {split}" for split, number in skipped.items())
        show_line(f"left out as unreadable: {left_out}")
    show_line(f"prepared in {builder.data_dir}")


if __name__ == "__main__":
    command_line.run(main)
