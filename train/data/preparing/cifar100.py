"""Writes CIFAR-100 by tfds's own builder."""

import hashlib
from pathlib import Path

import tensorflow_datasets as tfds
from requests import RequestException
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from train.data.preparing import tfds_datasets
from train.foundation.console import show_line
from train.foundation.errors import UserError

_ARCHIVE = "cifar-100-binary.tar.gz"
_URL = f"https://www.cs.toronto.edu/~kriz/{_ARCHIVE}"


def prepare(
    builder: tfds.core.DatasetBuilder, manual_dir: Path, *, skip_unreadable: bool
) -> dict[str, int]:
    """Writes CIFAR-100 from the archive in `manual_dir`, or else downloads it.

    tfds decodes no image, so that none can be left out: the result is empty.
    """
    del skip_unreadable
    if not tfds_datasets.has_tensorflow():
        raise UserError(f"preparing cifar100 {tfds_datasets.NEEDS_TENSORFLOW}")
    archive = manual_dir / _ARCHIVE
    if not archive.is_file():
        show_line(
            f"downloading {_URL} (169 MB), which is not in --manual_dir={manual_dir}; "
            "without a connection, this fails after four minutes"
        )
    try:
        tfds_datasets.write(builder, manual_dir)
    except RequestException as error:
        raise OSError(
            f"cannot download CIFAR-100 ({type(error).__name__}); download {_URL} "
            f"elsewhere and put it into --manual_dir={manual_dir}"
        ) from error
    except NonMatchingChecksumError as error:
        raise _wrong_checksum(builder, archive) from error
    return {}


def _wrong_checksum(cifar100: tfds.core.DatasetBuilder, archive: Path) -> Exception:
    if not archive.is_file():
        return OSError(f"what comes from {_URL} is not the published archive")
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return UserError(
        f"{archive} has the wrong SHA-256 checksum: it must be "
        f"{cifar100.url_infos[_URL].checksum} and is {found}; download {_URL} "
        "again"
    )
