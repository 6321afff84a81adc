"""ImageNet (ILSVRC 2012): tfds's own builder, validation images held out of the training images."""

import functools
import tarfile
from pathlib import Path

import tensorflow_datasets as tfds

from train.configuration.datasets import ImagenetFields
from train.data import augmentation
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.photographs import IMAGENET_ATTRIBUTION, photograph_spec
from train.data.splits import Holdout
from train.foundation.errors import UserError

_BUILDER = functools.partial(tfds.builder, "imagenet2012")
# The archives and their MD5 checksums.
_ARCHIVES = {
    "ILSVRC2012_img_train.tar": "1d675b47d978889d74fa0da5fadfb00e",
    "ILSVRC2012_img_val.tar": "29b22e2961454d5413ddabcf34fc5622",
}


def check_archives(folder: Path) -> None:
    """Refuses downloads of which tfds would silently prepare a part.

    It prepares one split of one archive, and the first members of an archive that broke off.
    """
    missing = [name for name in _ARCHIVES if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"--manual_dir={folder} does not have {' and '.join(missing)}; register at "
            "https://image-net.org/download-images and download both archives, 144 GB, into it"
        )
    for name, md5 in _ARCHIVES.items():
        if not _is_complete(folder / name):
            raise UserError(
                f"{folder / name} is not a complete tar archive; download it again; its MD5 "
                f"checksum is {md5}"
            )


def _is_complete(archive: Path) -> bool:
    """Whether an archive has its mark at the end, after the header of its last member."""
    try:
        with tarfile.open(archive, "r:") as members:
            for _ in members:
                pass
            end = members.offset
        with archive.open("rb") as file:
            file.seek(end)
            return file.read(tarfile.BLOCKSIZE) == bytes(tarfile.BLOCKSIZE)
    except tarfile.TarError:
        return False


def _spec(fields: ImagenetFields) -> DatasetSpec:
    return photograph_spec(
        fields,
        num_classes=1000,
        builder=_BUILDER,
        augment=augmentation.random_flip,
        attribution=IMAGENET_ATTRIBUTION,
        validation=Holdout(fields.validation_size, balanced=True),
        # Nobody has the labels of the official test images.
        test="validation",
        train_size=fields.train_size,
        balanced_subset=True,
    )


IMAGENET = DatasetFamily(_spec, _BUILDER, check_archives, ImagenetFields)
