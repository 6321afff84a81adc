"""Prepares a data set: `python -m train.prepare --dataset=plantnet300k --manual_dir=downloads`.

For ImageNet-LT and Pl@ntNet-300K a second start goes on where the first one was stopped; the others
begin anew. Nothing is installed, and nothing but CIFAR-100 is downloaded.
"""

import functools
import signal
from collections.abc import Callable
from pathlib import Path

import tensorflow_datasets as tfds
from absl import flags, logging

from train import command_line
from train.data import imagenet_lt, plantnet300k, prepared_files
from train.data.digits import Digits
from train.data.preparing import dataset_writer, tfds_datasets
from train.data.preparing.dataset_writer import PreparedBuilder
from train.data.synthetic_species import SyntheticSpecies
from train.foundation import fields
from train.foundation.console import show_line
from train.foundation.errors import InterruptedRunError, UserError

_BUILDERS: dict[str, Callable[..., tfds.core.DatasetBuilder]] = {
    "cifar100": functools.partial(tfds.builder, "cifar100"),
    "digits": Digits,
    "imagenet": functools.partial(tfds.builder, "imagenet2012"),
    "imagenet_lt": imagenet_lt.ImagenetLt,
    "plantnet300k": plantnet300k.Plantnet300k,
    "plantnet300k_v2": plantnet300k.Plantnet300kV2,
    "synthetic_species": SyntheticSpecies,
}

_DATASET = flags.DEFINE_string(
    "dataset", None, f"Needed. The data set: one of {', '.join(_BUILDERS)}."
)
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
    for name, flag in (("data_dir", _DATA_DIR), ("manual_dir", _MANUAL_DIR)):
        if flag.value == "":
            raise UserError(f"--{name} must be a folder; it is empty")
    prepare(
        _DATASET.value,
        data_dir=_DATA_DIR.value,
        manual_dir=_MANUAL_DIR.value,
        skip_unreadable=_SKIP_UNREADABLE.value,
    )


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
    builder = prepared_files.make_builder(_BUILDERS[name], data_dir, name=name)
    if builder.is_prepared():
        prepared_files.check_files(builder)
        show_line(f"{name} is prepared already, in {builder.data_dir}")
        return
    downloaded = (
        Path(manual_dir).expanduser().absolute()
        if manual_dir is not None
        else Path(builder.data_dir).parents[1] / "downloads" / "manual"
    )
    skipped: dict[str, int] = {}
    try:
        match name:
            case "cifar100":
                tfds_datasets.prepare_cifar100(builder, downloaded)
            case "imagenet":
                tfds_datasets.prepare_imagenet(builder, downloaded)
            case "imagenet_lt":
                contents = imagenet_lt.contents(downloaded, data_dir)
                skipped = dataset_writer.prepare(builder, contents, skip_unreadable=skip_unreadable)
            case "plantnet300k" | "plantnet300k_v2":
                contents = plantnet300k.contents(type(builder), downloaded)
                skipped = dataset_writer.prepare(builder, contents, skip_unreadable=skip_unreadable)
            case _:
                prepared_files.generate(builder)
    except KeyboardInterrupt as error:
        begins = "goes on from here" if isinstance(builder, PreparedBuilder) else "begins anew"
        raise InterruptedRunError(signal.SIGINT, f"the same command {begins}") from error
    _summarize(name, builder, skipped)


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
