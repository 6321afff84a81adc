"""The data sets that tfds's own builders prepare, CIFAR-100 and ImageNet, with TensorFlow."""

import contextlib
import functools
import hashlib
import importlib.util
import io
import os
import shutil
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from requests import RequestException
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from train.data.prepared_files import check_writable, full_disk, labels_file, make_builder
from train.data.preparing.dataset_writer import check_absent, locked
from train.data.preparing.sources import absent
from train.foundation import files
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.progress_bar import ImageProgress


@dataclass(frozen=True)
class _Archive:
    name: str
    size: str
    md5: str


_IMAGENET_ARCHIVES = (
    _Archive("ILSVRC2012_img_train.tar", "138 GB", "1d675b47d978889d74fa0da5fadfb00e"),
    _Archive("ILSVRC2012_img_val.tar", "6.3 GB", "29b22e2961454d5413ddabcf34fc5622"),
)
_CIFAR_100_ARCHIVE = "cifar-100-binary.tar.gz"
_CIFAR_100_URL = f"https://www.cs.toronto.edu/~kriz/{_CIFAR_100_ARCHIVE}"
_NEEDS_TENSORFLOW = (
    "needs TensorFlow, which is not installed: pip install '.[train,prepare]'; what is prepared is "
    "read without it"
)


def builder(name: str, data_dir: str | None) -> tfds.core.DatasetBuilder:
    """One of tfds's builders; making it and reading through it takes no TensorFlow."""
    return make_builder(functools.partial(tfds.builder, name), data_dir, name=name)


def prepare_cifar100(cifar100: tfds.core.DatasetBuilder, manual_dir: Path) -> None:
    """Prepares CIFAR-100 from the archive in `manual_dir`, or else downloads it."""
    if not _has_tensorflow():
        raise UserError(f"preparing cifar100 {_NEEDS_TENSORFLOW}")
    archive = manual_dir / _CIFAR_100_ARCHIVE
    if not archive.is_file():
        show_line(
            f"downloading {_CIFAR_100_URL} (169 MB), as it is not in --manual_dir={manual_dir}; "
            "where it cannot be reached, four minutes pass before that is said"
        )
    try:
        _prepare(cifar100, manual_dir)
    except RequestException as error:
        raise OSError(
            f"cannot download CIFAR-100 ({type(error).__name__}); download {_CIFAR_100_URL} "
            f"elsewhere and put it into --manual_dir={manual_dir}"
        ) from error
    except NonMatchingChecksumError as error:
        raise _wrong_checksum(cifar100, archive) from error


def _wrong_checksum(cifar100: tfds.core.DatasetBuilder, archive: Path) -> Exception:
    if not archive.is_file():
        return OSError(f"what comes from {_CIFAR_100_URL} is not the published archive")
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return UserError(
        f"{archive} has the wrong SHA-256 checksum: it must be "
        f"{cifar100.url_infos[_CIFAR_100_URL].checksum} and is {found}; download {_CIFAR_100_URL} "
        "again"
    )


def prepare_imagenet(imagenet: tfds.core.DatasetBuilder, manual_dir: Path) -> None:
    """Prepares ImageNet from the two archives in `manual_dir`, and lists labels and file names."""
    # Without one of them tfds prepares the other split alone.
    missing = [one for one in _IMAGENET_ARCHIVES if not (manual_dir / one.name).is_file()]
    if missing:
        remedies = ["register at https://image-net.org/download-images and download into it"]
        if not _has_tensorflow():
            remedies.append(f"preparing imagenet also {_NEEDS_TENSORFLOW}")
        raise absent([f"{one.name} ({one.size})" for one in missing], manual_dir, remedies)
    if not _has_tensorflow():
        raise UserError(f"preparing imagenet {_NEEDS_TENSORFLOW}")
    for archive in _IMAGENET_ARCHIVES:
        check_whole(manual_dir / archive.name, archive.md5)
    _prepare(imagenet, manual_dir)
    for split in imagenet.info.splits:
        _list_split(imagenet, split)


def check_whole(archive: Path, md5: str) -> None:
    """Refuses a download that broke off: tfds takes what is there for all of it.

    Looks from member to member, and then for the mark at the end.
    """
    try:
        with tarfile.open(archive, "r:") as members:
            for _ in members:
                pass
            end = members.offset
        with archive.open("rb") as file:
            file.seek(end)
            is_whole = file.read(tarfile.BLOCKSIZE) == bytes(tarfile.BLOCKSIZE)
    except tarfile.TarError:
        is_whole = False
    if not is_whole:
        raise UserError(
            f"{archive} is not a tar archive, or not all of one; download it again; its MD5 "
            f"checksum is {md5}"
        )


def file_names(imagenet: tfds.core.DatasetBuilder, split: str) -> list[str]:
    """The names of the images of a prepared split, in order."""
    path = Path(imagenet.data_dir) / _names_file(split)
    if not path.exists():
        _list_split(imagenet, split)
    return path.read_text().splitlines()


def _names_file(split: str) -> str:
    return f"file_names-{split}.txt"


def _list_split(imagenet: tfds.core.DatasetBuilder, split: str) -> None:
    """Writes the labels and file names of a split beside its records, in one pass over them."""
    folder = Path(imagenet.data_dir)
    source = imagenet.as_data_source(split, decoders={"image": tfds.decode.SkipDecoding()})
    labels = np.empty(len(source), np.int32)
    names = []
    with ImageProgress(f"listing the {split} images", len(source)) as progress:
        for index in range(len(source)):
            example = source[index]
            labels[index] = example["label"]
            names.append(example["file_name"].decode())
            progress.advance(1)
    with files.naming(folder / labels_file(split)):
        np.save(folder / labels_file(split), labels)
    files.write_whole(folder / _names_file(split), "".join(f"{name}\n" for name in names).encode())


def _has_tensorflow() -> bool:
    return importlib.util.find_spec("tensorflow") is not None


def _prepare(unprepared: tfds.core.DatasetBuilder, manual_dir: Path) -> None:
    final = Path(unprepared.data_dir)
    check_absent(final)
    check_writable(unprepared)
    # Read when TensorFlow is first imported: without its diary and its view of the GPU.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    config = tfds.download.DownloadConfig(
        # A folder that is not there is a mistake to tfds, though nothing may be needed of it.
        manual_dir=manual_dir if manual_dir.is_dir() else None,
        # What Google has prepared is in another format.
        try_download_gcs=False,
    )
    with locked(final.parent):
        for unfinished in final.parent.glob(f"incomplete.*_{final.name}"):
            shutil.rmtree(unfinished)  # Of a killed start: tfds does not go on with it.
        if not sys.stderr.isatty():
            tfds.disable_progress_bar()
            show_line(f"tfds prepares {unprepared.name} in {final}")
        try:
            # Its bars are shown on a terminal; its talk of the data set's unknown size is not.
            with contextlib.redirect_stdout(io.StringIO()):
                unprepared.download_and_prepare(download_config=config)
        except RuntimeError as error:
            raise full_disk(final, error) from error
        except (OSError, NonMatchingChecksumError):
            raise
        except Exception as error:  # Whatever a damaged archive makes the builder raise.
            what = (str(error).splitlines() or [""])[0]
            raise UserError(
                f"{unprepared.name} cannot be prepared from {manual_dir}: {type(error).__name__}: "
                f"{what}"
            ) from error
