"""ImageNet, ImageNet-LT, and what all published data sets of photographs share.

ImageNet (ILSVRC 2012) has tfds's own builder. ImageNet-LT is a long-tailed part of it by three
published lists; nothing is copied. A list has one line `PATH LABEL` per image, for example
`train/n01440764/n01440764_190.JPEG 0`. There are 115,846 images for training, 20,000 of ImageNet's
training images for validation, and the 50,000 official validation images for testing. The folder
`imagenet_lt` of all prepared data has the lists, and ImageNet's folders `train` and `val` or links
to them, each with a folder for each class.
"""

import os
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from train.configuration.datasets import FilesFields, ImagenetFields, ImagesFields, StreamedFields
from train.data import augmentation
from train.data.crops import ImageReader
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.examples import Examples, Split
from train.data.own_images import OwnImagesSpec
from train.data.prepared_spec import PreparedSpec
from train.data.sources.folder import Files
from train.data.splits import Holdout
from train.foundation.errors import UserError

READER = ImageReader.published(224, 256)

_NUM_CLASSES = 1000
_ATTRIBUTION = "ImageNet (https://www.image-net.org), for non-commercial research and education"
# The archives and their MD5 checksums.
_ARCHIVES = {
    "ILSVRC2012_img_train.tar": "1d675b47d978889d74fa0da5fadfb00e",
    "ILSVRC2012_img_val.tar": "29b22e2961454d5413ddabcf34fc5622",
}
_LT = "imagenet_lt"
_LT_URL = "https://github.com/facebookresearch/classifier-balancing/tree/main/data/ImageNet_LT"
LISTS = {
    Split.TRAIN: "ImageNet_LT_train.txt",
    Split.VALIDATION: "ImageNet_LT_val.txt",
    Split.TEST: "ImageNet_LT_test.txt",
}


def photograph_spec(fields: StreamedFields, **own: Any) -> PreparedSpec:
    """A prepared data set of photographs; `own` are its own attributes of `PreparedSpec`."""
    return PreparedSpec(name=fields.name, **_shared(), **own)


def _shared() -> dict[str, Any]:
    return {
        "image_shape": READER.shape,
        "mean": augmentation.IMAGENET_MEAN,
        "std": augmentation.IMAGENET_STD,
        "reader": READER,
    }


def check_archives(folder: Path) -> None:
    """Refuses downloads of which tfds would silently prepare a part.

    It prepares one split of one archive, and the first members of an archive that broke off.
    """
    for name, md5 in _ARCHIVES.items():
        if not _is_complete(folder / name):
            raise UserError(
                f"--manual_dir={folder} has no complete {name}; register at "
                "https://image-net.org/download-images and download both archives, 144 GB, into "
                f"it; its MD5 checksum is {md5}"
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
    except (OSError, tarfile.TarError):
        return False


def _imagenet_builder(**options: Any) -> Any:
    # Imported here because tensorflow-datasets takes long to import.
    import tensorflow_datasets as tfds  # noqa: PLC0415

    return tfds.builder("imagenet2012", **options)


def _imagenet(fields: ImagenetFields) -> DatasetSpec:
    return photograph_spec(
        fields,
        num_classes=_NUM_CLASSES,
        builder=_imagenet_builder,
        augment=augmentation.random_flip,
        attribution=_ATTRIBUTION,
        validation=Holdout(fields.validation_size, balanced=True),
        # Nobody has the labels of the official test images.
        test="validation",
    )


def _imagenet_lt(fields: FilesFields) -> DatasetSpec:
    return OwnImagesSpec(
        name=fields.name,
        num_classes=_NUM_CLASSES,
        augment=augmentation.random_flip,
        attribution=_ATTRIBUTION,
        fields=ImagesFields(
            name=fields.name,
            batch_size=fields.batch_size,
            path=_LT,
            image_size=READER.shape[0],
            skip_unreadable=fields.skip_unreadable,
        ),
        source=_find_lt,
        own_reader=lambda _shape: READER,
        **_shared(),
    )


def _find_lt(data_dir: str | None) -> Examples:
    """The images of the lists, in their order.

    Raises:
        UserError: a list or an image is missing, or a line is not as it should be.
    """
    prepared = data_dir or os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    root = Path(prepared).expanduser().absolute() / _LT
    missing = [name for name in LISTS.values() if not (root / name).is_file()]
    if missing:
        raise UserError(
            field="config.dataset.data_dir",
            must_be=f"a folder with {_LT}, which has the lists of {_LT_URL} and ImageNet's "
            "folders train and val, or links to them",
            but=f"{root} does not have {', '.join(missing)}",
        )
    rows: list[tuple[str, int, Split]] = []
    class_names: dict[int, str] = {}
    for split, name in LISTS.items():
        # A file that is not text then has a line without a path and a class, which is refused.
        lines = (root / name).read_text("utf-8-sig", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            path, _, digits = line.strip().rpartition(" ")
            label = int(digits) if digits.isdecimal() else _NUM_CLASSES
            folder = PurePosixPath(path).parent.name
            if label >= _NUM_CLASSES or class_names.setdefault(label, folder) != folder:
                raise UserError(
                    f"{root / name}, line {number}: a line must be a path and a class from 0 to "
                    f"{_NUM_CLASSES - 1}, each with one folder; it is {line!r}"
                )
            rows.append((path, label, split))
        found = {label for _, label, of in rows if of == split}
        if len(found) != _NUM_CLASSES:
            raise UserError(f"{root / name} has images of {len(found)} classes, not {_NUM_CLASSES}")
    paths, labels, splits = zip(*rows, strict=True)
    listed = np.array(paths, object)
    return Examples.of_source(
        Files(root, listed),
        np.array(labels),
        [class_names[label] for label in range(_NUM_CLASSES)],
        str(root),
        names=listed,
        splits=np.array(splits, np.int8),
    )


IMAGENET = DatasetFamily(_imagenet, _imagenet_builder, check_archives, ImagenetFields)
IMAGENET_LT = DatasetFamily(_imagenet_lt, fields=FilesFields)
