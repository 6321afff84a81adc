"""Prepares a data set: `python -m train.prepare --dataset=plantnet300k --manual_dir=downloads`.

A data set of tensorflow-datasets is named after `tfds:`, as in --dataset=tfds:oxford_flowers102.
The images of a prepared data set are checked: those that cannot be read are left out.

A preparation that was stopped starts over when the command is given again. Nothing is installed,
and only CIFAR-100 and data sets after `tfds:` are downloaded.
"""

import functools
import importlib.util
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from absl import flags, logging

from train.data import DATASETS, find, look
from train.data.sources import tfds as prepared_files
from train.data.sources.tfds import PREFIX
from train.foundation import (
    command,
    files,
    kinds,
)
from train.foundation.console import in_words, show_line
from train.foundation.errors import UserError, explained, naming_flags, needs_package
from train.foundation.flags import Flag, Needed, check, declare
from train.run import output_files

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


_ROWS = declare(
    Needed(("dataset",), f"one of {', '.join(DATASETS)}, or tfds:NAME"),
    *(Flag(flag.name, kinds.TEXT) for flag in (_DATA_DIR, _MANUAL_DIR)),
)


def main() -> None:
    """Prepares the data set that the flags name."""
    check(_ROWS)
    for flag in (_DATA_DIR, _MANUAL_DIR):
        if flag.value is not None:
            output_files.check_is_folder(flag.name, Path(flag.value))
    assert _DATASET.value is not None
    # Below errors, tfds reports that a new folder is empty.
    logging.set_verbosity(logging.ERROR)
    prepare(_DATASET.value, data_dir=_DATA_DIR.value, manual_dir=_MANUAL_DIR.value)


def prepare(name: str, *, data_dir: str | None, manual_dir: str | None) -> None:
    """Prepares a data set, unless it is prepared already, and prints what is in it.

    Everything is written below `incomplete.VERSION` beside the final folder. The folder of the data
    set then gets its name in one step: nothing else makes a data set prepared.

    Args:
        name: as on the command line.
        data_dir: the folder of prepared data sets; `None` for tfds's own default.
        manual_dir: the folder with what was downloaded; `None` for tfds's own default.

    Raises:
        UserError: files are missing or damaged, or the folder cannot be written to.
        OSError: the disk is full.
    """
    is_by_name = name.startswith(PREFIX)
    with naming_flags({"config.dataset.name": "--dataset"}):
        family = find("images" if is_by_name else name)
    by_name = functools.partial(tfds.builder, name.removeprefix(PREFIX))
    make = by_name if is_by_name else family.builder
    if make is None:
        raise UserError(f"--dataset={name} needs no preparation")
    builder = prepared_files.make_builder(make, data_dir, name)
    final = Path(builder.data_dir)
    # The folder of all data sets has a folder for this one, its config and its version.
    downloads = final.parents[builder.info.full_name.count("/")] / "downloads"
    manual = Path(manual_dir).expanduser().absolute() if manual_dir else downloads / "manual"
    with (
        explained("the same command starts over"),
        files.lock(final.parent, "another preparation"),
    ):
        if builder.is_prepared():
            show_line(f"{name} is prepared already, in {final}")
            return
        # The folder gets its name in one step, which nothing by that name allows.
        if os.path.lexists(final):
            raise UserError(
                f"{final} exists and is not a complete prepared data set; delete it to prepare it "
                "again"
            )
        classes = prepared_files.class_names(builder.info.features, name)
        if family.check_archives is not None:
            family.check_archives(manual)
        _check_tensorflow(builder, name)
        show_line(f"preparing {name} in {final}")
        unfinished = final.with_name(f"incomplete.{final.name}")
        shutil.rmtree(unfinished, ignore_errors=True)  # From a killed start.
        try:
            made = prepared_files.make_builder(make, str(unfinished), name)
            _build(made, name, manual, downloads)
            unreadable = _leave_out_unreadable(made)
            Path(made.data_dir).rename(final)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    info = made.info
    counts = ", ".join(f"{one.num_examples:,} {split}" for split, one in info.splits.items())
    show_line(f"{name}: {len(classes):,} classes; images: {counts}")
    if unreadable:
        left_out = in_words(unreadable, "images")
        show_line(f"{len(unreadable):,} cannot be read, and are left out: {left_out}")


def _check_tensorflow(builder: tfds.core.DatasetBuilder, name: str) -> None:
    """Refuses a builder of tfds before it downloads anything, if it cannot write its files."""
    is_of_tfds = type(builder).__module__.startswith("tensorflow_datasets.")
    if is_of_tfds and importlib.util.find_spec("tensorflow") is None:
        raise needs_package(f"preparing {name}", "tensorflow-cpu", "prepare")
    # TensorFlow reads these when it is first imported: no log lines, no use of a GPU.
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": ""}
    for variable, value in quiet.items():
        os.environ.setdefault(variable, value)


def _build(builder: tfds.core.DatasetBuilder, name: str, manual_dir: Path, downloads: Path) -> None:
    """Has a builder write its files; any error of it is one line."""
    # The data sets that Google has prepared are in another format.
    config = tfds.download.DownloadConfig(manual_dir=manual_dir, try_download_gcs=False)
    try:
        with prepared_files.quiet():
            if sys.stderr.isatty():
                tfds.enable_progress_bar()
            builder.download_and_prepare(download_dir=downloads, download_config=config)
    except Exception as error:  # A damaged archive can make a builder raise anything.
        if isinstance(error, OSError):
            raise
        # The library of records has no type of its own for a full disk.
        if "write() failed" in str(error):
            raise OSError(f"cannot write prepared files: {error}") from error
        told = f"{type(error).__name__}: {error}"
        how = builder.MANUAL_DOWNLOAD_INSTRUCTIONS or ""
        # The library has said it if the folder is missing.
        if how.strip() not in told:
            told += f"; {how}"
        raise UserError(
            f"{name} cannot be prepared from --manual_dir={manual_dir}: {' '.join(told.split())}"
        ) from error


def _leave_out_unreadable(builder: tfds.core.DatasetBuilder) -> list[str]:
    """Looks at each image. No run takes those that cannot be read; returns their names."""
    unreadable: list[str] = []
    for split in builder.info.splits:
        examples = prepared_files.read(builder, split)
        without = np.flatnonzero(look.look(examples).reasons != "").tolist()
        prepared_files.leave_out(builder, split, without)
        unreadable += map(examples.name, without)
    return unreadable


if __name__ == "__main__":
    command.run(main)
