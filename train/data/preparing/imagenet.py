"""Writes ImageNet by tfds's own builder, and lists its labels and file names."""

import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

from train.data.prepared_files import check_files, labels_content, labels_file
from train.data.preparing import tfds_datasets
from train.data.preparing.sources import absent
from train.foundation import checksums
from train.foundation.errors import UserError
from train.foundation.progress_bar import ImageProgress


@dataclass(frozen=True)
class _Archive:
    name: str
    size: str
    md5: str


_ARCHIVES = (
    _Archive("ILSVRC2012_img_train.tar", "138 GB", "1d675b47d978889d74fa0da5fadfb00e"),
    _Archive("ILSVRC2012_img_val.tar", "6.3 GB", "29b22e2961454d5413ddabcf34fc5622"),
)


def prepare(
    builder: tfds.core.DatasetBuilder, manual_dir: Path, *, skip_unreadable: bool
) -> dict[str, int]:
    """Writes ImageNet from the two archives in `manual_dir`.

    tfds decodes no image, so that none can be left out: the result is empty.
    """
    del skip_unreadable
    # Without one of them tfds prepares only the other split.
    missing = [one for one in _ARCHIVES if not (manual_dir / one.name).is_file()]
    if missing:
        remedies = ["register at https://image-net.org/download-images and download into it"]
        if not tfds_datasets.has_tensorflow():
            remedies.append(f"preparing imagenet also {tfds_datasets.NEEDS_TENSORFLOW}")
        raise absent([f"{one.name} ({one.size})" for one in missing], manual_dir, remedies)
    if not tfds_datasets.has_tensorflow():
        raise UserError(f"preparing imagenet {tfds_datasets.NEEDS_TENSORFLOW}")
    for archive in _ARCHIVES:
        check_whole(manual_dir / archive.name, archive.md5)
    tfds_datasets.write(builder, manual_dir)
    for split in builder.info.splits:
        _list_split(builder, split)
    return {}


def check_whole(archive: Path, md5: str) -> None:
    """Refuses a download that broke off, which tfds does not notice.

    Reads the header of every member, and then looks for the mark at the end.
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
            f"{archive} is not a complete tar archive; download it again; its MD5 checksum is {md5}"
        )


def file_names(imagenet: tfds.core.DatasetBuilder, split: str) -> list[str]:
    """The names of the images of a prepared split, in order."""
    check_files(imagenet)
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
    checksums.add(folder, labels_file(split), labels_content(labels))
    checksums.add(folder, _names_file(split), "".join(f"{name}\n" for name in names).encode())
