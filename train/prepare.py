"""Prepares a data set: `python -m train.prepare --dataset=plantnet300k --manual_dir=downloads`.

A data set of tensorflow-datasets is named after `tfds:`, as in --dataset=tfds:oxford_flowers102.
The images of a prepared data set are checked: those that cannot be read are printed.

A preparation that was stopped starts over when the command is given again. Nothing is installed,
and only CIFAR-100 and data sets after `tfds:` are downloaded.
"""

import dataclasses
import functools
from pathlib import Path

from absl import flags, logging

from train.data import DATASET_NAME, DATASETS, DatasetFamily, builders, find, prepared_files
from train.data import preparing as preparation
from train.data.own import tfds_images
from train.data.own.tfds_images import PREFIX
from train.foundation import command_line, fields, flag_rules, interruption
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.flag_rules import Flag, Needed
from train.foundation.messages import in_words
from train.workdir import output_files

_DATASET = flags.DEFINE_string(
    "dataset",
    None,
    f"Needed. The data set: one of {', '.join(DATASETS)}, or tfds:NAME for one of "
    "tensorflow-datasets.",
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    None,
    "The folder of prepared data sets; by default the environment variable TFDS_DATA_DIR, or "
    "else ~/tensorflow_datasets.",
)
_MANUAL_DIR = flags.DEFINE_string(
    "manual_dir",
    None,
    "The folder with the downloaded archives, or with what was in them; by default "
    "downloads/manual below the data directory.",
)


def _check_name(name: str) -> str | None:
    """What the name of a data set must be instead; None if it is fine."""
    return None if name.startswith(PREFIX) else DATASET_NAME(name)


_ROWS = flag_rules.declare(
    Needed(("dataset",), f"one of {', '.join(DATASETS)}, or tfds:NAME"),
    Flag("dataset", _check_name),
    *(Flag(flag.name, fields.text("a folder")) for flag in (_DATA_DIR, _MANUAL_DIR)),
)


def main() -> None:
    """Prepares the data set that the flags name."""
    flag_rules.check(_ROWS)
    assert _DATASET.value is not None
    # Below errors, tfds reports that a new folder is empty.
    logging.set_verbosity(logging.ERROR)
    prepare(_DATASET.value, data_dir=_DATA_DIR.value, manual_dir=_MANUAL_DIR.value)


def prepare(name: str, *, data_dir: str | None, manual_dir: str | None) -> None:
    """Prepares a data set, unless it is prepared already, and prints what is in it.

    Args:
        name: as on the command line.
        data_dir: the folder of prepared data sets; `None` for tfds's own default.
        manual_dir: the folder with what was downloaded; `None` for tfds's own default.
    """
    family = _family(name)
    if family.builder is None:
        raise UserError(f"--dataset={name} needs no preparation")
    builder = builders.make_builder(family.builder, data_dir, name=name)
    output_files.refuse_folders_of_the_system("data_dir", Path(builder.data_dir), is_folder=True)
    if builder.is_prepared():
        prepared_files.check_files(builder)
        show_line(f"{name} is prepared already, in {builder.data_dir}")
        return
    # The folder of all data sets has a folder for this one, its config and its version.
    root = Path(builder.data_dir).parents[builder.info.full_name.count("/")]
    downloads = root / "downloads"
    manual = Path(manual_dir).expanduser().absolute() if manual_dir else downloads / "manual"
    show_line(f"preparing {name} in {builder.data_dir}")
    with interruption.explained("the same command starts over"):
        unreadable = preparation.prepare(family, builder, name, manual, downloads)
    prepared = builders.make_builder(family.builder, data_dir, name=name).info
    counts = ", ".join(f"{one.num_examples:,} {split}" for split, one in prepared.splits.items())
    _, label = tfds_images.image_and_label(prepared.features, name)
    show_line(f"{name}: {prepared.features[label].num_classes:,} classes; images: {counts}")
    if unreadable:
        show_line(
            f"cannot be read: {in_words(unreadable, 'images')}; "
            "--config.dataset.skip_unreadable=True leaves them out of a run"
        )


def _family(name: str) -> DatasetFamily:
    """The data set of a name, as on the command line."""
    if not name.startswith(PREFIX):
        return find(name)
    by_name = functools.partial(tfds_images.open_by_name, name.removeprefix(PREFIX))
    return dataclasses.replace(find("tfds"), builder=by_name)


if __name__ == "__main__":
    command_line.run(main)
