"""Prepares data sets: the builder of tensorflow-datasets runs, and each image is looked at once.

Everything is written below `incomplete.VERSION` beside the final folder. The folder of the data set
then gets its name in one step: nothing else makes a data set prepared.
"""

import functools
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow_datasets as tfds

from train.data import builders, images, prepared_files
from train.data.credits import AUTHOR, LICENSE, Credits
from train.data.dataset import DatasetFamily
from train.data.images import UnreadableImageError
from train.data.own import tfds_images
from train.data.prepared_files import PreparedExamples
from train.foundation import files, folder_lock, full_disks, packages, reading
from train.foundation.errors import UserError, let_through
from train.foundation.progress_bar import ImageProgress

# The images that are read before they are wanted, beside one in each thread.
_AHEAD = 64


def prepare(
    family: DatasetFamily,
    builder: tfds.core.DatasetBuilder,
    name: str,
    manual_dir: Path,
    downloads: Path,
) -> list[str]:
    """Writes the files of a data set that is not prepared.

    Args:
        family: the data set.
        builder: its builder.
        name: the name of the data set in messages.
        manual_dir: the folder with the downloaded archives, or with what was in them.
        downloads: the folder for what the builder downloads.

    Returns:
        The names of the images that cannot be read.

    Raises:
        UserError: files are missing or damaged, or the folder cannot be written to.
        OSError: the disk is full.
    """
    assert family.builder is not None
    final = Path(builder.data_dir)
    builders.check_writable(builder)
    with folder_lock.held(final.parent, "another preparation"):
        if builder.is_prepared():  # By another process, a moment ago.
            return []
        # The files get the name of the folder in one step, which a link does not allow.
        if final.is_symlink() or (final.exists() and (not final.is_dir() or any(final.iterdir()))):
            raise UserError(
                f"{final} exists and is not a complete prepared data set; delete it to prepare it "
                "again"
            )
        tfds_images.image_and_label(builder.info.features, name)
        if family.check_archives is not None:
            family.check_archives(manual_dir)
        _check_tensorflow(builder, name)
        unfinished = final.with_name(f"incomplete.{final.name}")
        shutil.rmtree(unfinished, ignore_errors=True)  # From a killed start.
        try:
            made = builders.make_builder(family.builder, str(unfinished), name=name)
            _build(made, name, manual_dir, downloads)
            unreadable = _look(made, name)
            builders.write_checksums(Path(made.data_dir))
            Path(made.data_dir).rename(final)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return unreadable


def _check_tensorflow(builder: tfds.core.DatasetBuilder, name: str) -> None:
    """Refuses a builder of tfds before it downloads anything, if it cannot write its files."""
    is_of_tfds = type(builder).__module__.startswith("tensorflow_datasets.")
    if is_of_tfds and importlib.util.find_spec("tensorflow") is None:
        raise UserError(
            f"preparing {name} needs TensorFlow, which is not installed: "
            f"{packages.install('prepare')}; what is prepared is read without it"
        )
    # TensorFlow reads these when it is first imported: no log lines, no use of a GPU.
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": ""}
    for variable, value in quiet.items():
        os.environ.setdefault(variable, value)


def _build(builder: tfds.core.DatasetBuilder, name: str, manual_dir: Path, downloads: Path) -> None:
    """Has a builder write its files; any error of it is one line."""
    config = tfds.download.DownloadConfig(
        manual_dir=manual_dir,
        # The data sets that Google has prepared are in another format.
        try_download_gcs=False,
    )
    try:
        with builders.quiet_tfds():
            if sys.stderr.isatty():
                tfds.enable_progress_bar()
            builder.download_and_prepare(download_dir=downloads, download_config=config)
    except Exception as error:  # A damaged archive can make a builder raise anything.
        let_through(error)
        if full_disks.reason(error, downloads) is not None:
            raise builders.full_disk(builder.data_dir, error) from error
        told = f"{type(error).__name__}: {error}; {builder.MANUAL_DOWNLOAD_INSTRUCTIONS or ''}"
        raise UserError(
            f"{name} cannot be prepared from --manual_dir={manual_dir}: "
            f"{' '.join(told.split()).removesuffix(';')}"
        ) from error


def _look(builder: tfds.core.DatasetBuilder, name: str) -> list[str]:
    """Decodes each image, and writes the labels and credits of each split beside its records.

    Returns:
        The names of the images that cannot be decoded.
    """
    image, label = tfds_images.image_and_label(builder.info.features, name)
    folder, unreadable = Path(builder.data_dir), []
    splits = {split: PreparedExamples(builder, split, image=image) for split in builder.info.splits}
    with ImageProgress("checking", sum(map(len, splits.values()))) as progress:
        for split, examples in splits.items():
            labels, credited = [], []
            look = functools.partial(_look_at, examples, image, label)
            for found in reading.in_threads(look, range(len(examples)), ahead=_AHEAD):
                labels.append(found.label)
                credited.append(found.credit)
                if not found.is_readable:
                    unreadable.append(f"{found.name} of {split}")
                progress.advance(1)
            content = prepared_files.labels_content(np.array(labels, np.int32))
            files.write_whole(folder / prepared_files.labels_file(split), content)
            if any(map(any, credited)):
                content = files.to_json(Credits.of_pairs(credited).to_plain())
                files.write_whole(folder / prepared_files.credits_file(split), content)
    return unreadable


class _Seen(NamedTuple):
    """What is known of an example after a look at it."""

    label: int
    credit: tuple[str, str]
    name: str
    is_readable: bool


def _look_at(examples: PreparedExamples, image: str, label: str, index: int) -> _Seen:
    """Reads an example, whose features `image` and `label` are named, and decodes its image."""
    example = examples[index]

    def text(key: str) -> str:
        found = example.get(key)
        return found.decode(errors="replace") if isinstance(found, bytes) else ""

    return _Seen(
        label=int(example[label]),
        credit=(text(AUTHOR), text(LICENSE)),
        name=text("file_name") or f"record {index}",
        is_readable=_is_readable(example[image]),
    )


def _is_readable(encoded: bytes) -> bool:
    try:
        images.decode(encoded, "")
    except UnreadableImageError:
        return False
    return True
