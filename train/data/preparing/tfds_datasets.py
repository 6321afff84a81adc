"""Runs the builders of tfds that need TensorFlow to write their files."""

import contextlib
import functools
import importlib.util
import io
import os
import shutil
import sys
from pathlib import Path

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from train.data.builders import check_writable, full_disk, make_builder, write_checksums
from train.data.preparing.dataset_writer import check_absent, locked
from train.foundation import packages
from train.foundation.console import show_line
from train.foundation.errors import UserError, first_line

NEEDS_TENSORFLOW = (
    f"needs TensorFlow, which is not installed: {packages.install('prepare')}; what is prepared is "
    "read without it"
)


def builder(name: str, data_dir: str | None) -> tfds.core.DatasetBuilder:
    """One of tfds's builders; to make it and to read through it takes no TensorFlow."""
    return make_builder(functools.partial(tfds.builder, name), data_dir, name=name)


def has_tensorflow() -> bool:
    """Whether TensorFlow is installed; it is not imported."""
    return importlib.util.find_spec("tensorflow") is not None


def write(unprepared: tfds.core.DatasetBuilder, manual_dir: Path) -> None:
    """Has a builder write its files, from archives in `manual_dir` or downloaded ones.

    Raises:
        UserError: the folder cannot be written to, or an archive is damaged.
        OSError: the disk is full, or a download failed.
        NonMatchingChecksumError: an archive is not the published one.
    """
    final = Path(unprepared.data_dir)
    check_absent(final)
    check_writable(unprepared)
    # TensorFlow reads these when it is first imported: no log lines, no use of a GPU.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    config = tfds.download.DownloadConfig(
        # tfds refuses a folder that does not exist, even if it needs no file of it.
        manual_dir=manual_dir if manual_dir.is_dir() else None,
        # The data sets that Google has prepared are in another format.
        try_download_gcs=False,
    )
    with locked(final.parent):
        for unfinished in final.parent.glob(f"incomplete.*_{final.name}"):
            shutil.rmtree(unfinished)  # From a killed start: tfds does not resume it.
        if not sys.stderr.isatty():
            tfds.disable_progress_bar()
            show_line(f"tfds prepares {unprepared.name} in {final}")
        try:
            # Its progress bars are shown on a terminal, its messages are not.
            with contextlib.redirect_stdout(io.StringIO()):
                unprepared.download_and_prepare(download_config=config)
        except RuntimeError as error:
            raise full_disk(final, error) from error
        except (OSError, NonMatchingChecksumError):
            raise
        except Exception as error:  # A damaged archive can make the builder raise anything.
            raise UserError(
                f"{unprepared.name} cannot be prepared from {manual_dir}: {type(error).__name__}: "
                f"{first_line(error)}"
            ) from error
        write_checksums(final)
