"""Writes a data set of tensorflow-datasets by its own builder."""

from pathlib import Path

import tensorflow_datasets as tfds
from requests import RequestException
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from train.data.own import tfds_images
from train.data.preparing import tfds_datasets
from train.foundation.errors import UserError, first_line


def prepare(
    builder: tfds.core.DatasetBuilder, manual_dir: Path, *, skip_unreadable: bool
) -> dict[str, int]:
    """Downloads what the data set is made of, or takes it from `manual_dir`, and writes the files.

    tfds decodes no image, so that none can be left out: the result is empty.
    """
    del skip_unreadable
    tfds_images.image_and_label(builder.info.features, builder.name)
    if not tfds_datasets.has_tensorflow():
        raise UserError(f"preparing {builder.name} {tfds_datasets.NEEDS_TENSORFLOW}")
    try:
        tfds_datasets.write(builder, manual_dir)
    except RequestException as error:
        raise OSError(f"cannot download {builder.name} ({type(error).__name__})") from error
    except NonMatchingChecksumError as error:
        raise UserError(
            f"an archive of {builder.name} is not the one that tfds knows: {first_line(error)}"
        ) from error
    return {}
