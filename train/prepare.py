"""Prepares a data set: `python -m train.prepare --dataset=plantnet300k --manual_dir=downloads`.

A data set of tensorflow-datasets is named after `tfds:`, as in --dataset=tfds:oxford_flowers102.
For ImageNet-LT and Pl@ntNet-300K a second start goes on where the first one was stopped; the others
begin anew. Nothing is installed, and nothing but CIFAR-100 is downloaded.
"""

import dataclasses
import functools
import signal
from collections.abc import Mapping
from pathlib import Path

import tensorflow_datasets as tfds
from absl import flags, logging

from train.data import DATASET_NAME, DATASETS, DatasetFamily, builders, find, prepared_files
from train.data.builders import ReadOnlyBuilder
from train.data.own import tfds_images
from train.data.own.tfds_images import PREFIX
from train.foundation import command_line, import_paths
from train.foundation.console import show_line
from train.foundation.errors import InterruptedRunError, UserError

_DATASET = flags.DEFINE_string(
    "dataset",
    None,
    f"Needed. The data set: one of {', '.join(DATASETS)}, or tfds:NAME for one of "
    "tensorflow-datasets.",
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
        raise UserError(f"--dataset is needed: it must be one of {', '.join(DATASETS)}")
    if not _DATASET.value.startswith(PREFIX) and (wrong := DATASET_NAME(_DATASET.value)):
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
    family = _family(name)
    if family.builder is None:
        raise UserError(f"--dataset={name} needs no preparation: its files are read where they lie")
    builder = builders.make_builder(family.builder, data_dir, name=name)
    if builder.is_prepared():
        prepared_files.check_files(builder)
        show_line(f"{name} is prepared already, in {builder.data_dir}")
        return
    downloaded = (
        Path(manual_dir).expanduser().absolute()
        if manual_dir is not None
        else Path(builder.data_dir).parents[1] / "downloads" / "manual"
    )
    try:
        skipped = _write(family, builder, downloaded, skip_unreadable=skip_unreadable)
    except KeyboardInterrupt as error:
        begins = "goes on from here" if isinstance(builder, ReadOnlyBuilder) else "begins anew"
        raise InterruptedRunError(signal.SIGINT, f"the same command {begins}") from error
    _summarize(name, builder, skipped)


def _family(name: str) -> DatasetFamily:
    """The data set of a name, as on the command line."""
    if not name.startswith(PREFIX):
        return find(name)
    return dataclasses.replace(
        find("tfds"),
        builder=functools.partial(tfds_images.open_by_name, name.removeprefix(PREFIX)),
        prepare="train.data.preparing.tfds_by_name:prepare",
    )


def _write(
    family: DatasetFamily,
    builder: tfds.core.DatasetBuilder,
    downloaded: Path,
    *,
    skip_unreadable: bool,
) -> Mapping[str, int]:
    """Writes the files, and returns the numbers of images left out, by split."""
    if family.prepare is None:
        builders.generate(builder)
        return {}
    write = import_paths.load(family.prepare)
    skipped: Mapping[str, int] = write(builder, downloaded, skip_unreadable=skip_unreadable)
    return skipped


def _summarize(name: str, builder: tfds.core.DatasetBuilder, skipped: Mapping[str, int]) -> None:
    splits = builder.info.splits
    counts = ", ".join(f"{splits[split].num_examples:,} {split}" for split in splits)
    features = builder.info.features
    _, label = tfds_images.image_and_label(features, name)
    show_line(f"{name}: {features[label].num_classes:,} classes; images: {counts}")
    if any(skipped.values()):
        left_out = ", ".join(f"{number:,} {split}" for split, number in skipped.items())
        show_line(f"left out as unreadable: {left_out}")
    show_line(f"prepared in {builder.data_dir}")


if __name__ == "__main__":
    command_line.run(main)
