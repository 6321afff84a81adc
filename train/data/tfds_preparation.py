"""The data sets that tfds's own builders prepare, CIFAR-100 and ImageNet, with TensorFlow."""

import contextlib
import hashlib
import importlib.util
import io
import os
import shutil
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from requests import RequestException
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from train import files
from train.data.preparation import FILE_FORMAT, check_absent, labels_file, locked
from train.data.progress import ImageProgress, show_line
from train.errors import UserError

_IMAGENET_ARCHIVES = {
    "ILSVRC2012_img_train.tar": "138 GB",
    "ILSVRC2012_img_val.tar": "6.3 GB",
}
_CIFAR_100_ARCHIVE = "cifar-100-binary.tar.gz"
_CIFAR_100_URL = f"https://www.cs.toronto.edu/~kriz/{_CIFAR_100_ARCHIVE}"


def builder(name: str, data_dir: str | None) -> tfds.core.DatasetBuilder:
    """One of tfds's builders; making it and reading through it takes no TensorFlow."""
    return tfds.builder(name, data_dir=data_dir, file_format=FILE_FORMAT)


def prepare_cifar100(cifar100: tfds.core.DatasetBuilder, manual_dir: Path) -> None:
    """Prepares CIFAR-100 from the archive in `manual_dir`, or else downloads it."""
    _check_tensorflow("cifar100")
    archive = manual_dir / _CIFAR_100_ARCHIVE
    if not archive.is_file():
        show_line(f"downloading {_CIFAR_100_ARCHIVE} (169 MB), as it is not in {manual_dir}")
    try:
        _prepare(cifar100, manual_dir)
    except RequestException as error:
        raise OSError(
            f"cannot download CIFAR-100 ({type(error).__name__}); download {_CIFAR_100_URL} "
            f"elsewhere and put it into --manual_dir={manual_dir}"
        ) from error
    except NonMatchingChecksumError as error:
        expected = cifar100.url_infos[_CIFAR_100_URL].checksum
        with archive.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        raise UserError(
            f"{archive} has the wrong SHA-256 checksum: it must be {expected} and is {found}; "
            f"download {_CIFAR_100_URL} again"
        ) from error


def prepare_imagenet(imagenet: tfds.core.DatasetBuilder, manual_dir: Path) -> None:
    """Prepares ImageNet from the two archives in `manual_dir`, and lists labels and file names."""
    for archive, size in _IMAGENET_ARCHIVES.items():
        # Without one of them tfds prepares the other split alone.
        if not (manual_dir / archive).is_file():
            raise UserError(
                f"{archive} ({size}) is not in --manual_dir={manual_dir}: register at "
                "https://image-net.org/download-images and download "
                f"{' and '.join(_IMAGENET_ARCHIVES)} into it"
            )
    _check_tensorflow("imagenet")
    _prepare(imagenet, manual_dir)
    for split in imagenet.info.splits:
        _list_split(imagenet, split)


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


def _check_tensorflow(name: str) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        raise UserError(
            f"preparing {name} needs TensorFlow, which is not installed: pip install "
            "'.[train,prepare]'; what is prepared is read without it"
        )
    # Read when TensorFlow is first imported: without its diary and its view of the GPU.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def _prepare(unprepared: tfds.core.DatasetBuilder, manual_dir: Path) -> None:
    final = Path(unprepared.data_dir)
    check_absent(final)
    config = tfds.download.DownloadConfig(
        # A folder that is not there is a mistake to tfds, though nothing may be needed of it.
        manual_dir=manual_dir if manual_dir.is_dir() else None,
        # What Google has prepared is in another format.
        try_download_gcs=False,
    )
    final.parent.mkdir(parents=True, exist_ok=True)
    with locked(final.parent):
        for unfinished in final.parent.glob(f"incomplete.*_{final.name}"):
            shutil.rmtree(unfinished)  # Of a killed start: tfds does not go on with it.
        try:
            # Its bars are shown; its talk of the data set's unknown size is not.
            with contextlib.redirect_stdout(io.StringIO()):
                unprepared.download_and_prepare(download_config=config)
        except RuntimeError as error:  # How the writer reports a full disk.
            raise OSError(f"cannot prepare {unprepared.name} in {final}: {error}") from error
        except (OSError, NonMatchingChecksumError):
            raise
        except Exception as error:  # Whatever a damaged archive makes the builder raise.
            what = (str(error).splitlines() or [""])[0]
            raise UserError(
                f"{unprepared.name} cannot be prepared from {manual_dir}: {type(error).__name__}: "
                f"{what}"
            ) from error
