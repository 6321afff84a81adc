"""ImageNet-LT: the images of ImageNet that three published lists name, a long tail of them.

The lists have a line `PATH LABEL` an image, as `train/n01440764/n01440764_190.JPEG 0`: 115,846 for
training, 20,000 of ImageNet's training images for validation, and the 50,000 official validation
images for testing. The images come from an ImageNet folder or from tfds's prepared ImageNet.
"""

from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from train.data.preparing import tfds_datasets
from train.data.preparing.dataset_writer import Contents, PreparedBuilder
from train.data.preparing.shards import Example
from train.data.preparing.sources import FolderSource, absent
from train.foundation.errors import UserError

LISTS = {
    "train": "ImageNet_LT_train.txt",
    "validation": "ImageNet_LT_val.txt",
    "test": "ImageNet_LT_test.txt",
}
NUM_CLASSES = 1000
_URL = "https://github.com/facebookresearch/classifier-balancing/tree/main/data/ImageNet_LT"


class ImagenetLt(PreparedBuilder):
    """ImageNet-LT, with the features of tfds's ImageNet."""

    name = "imagenet_lt"
    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="ImageNet-LT: a long-tailed part of ImageNet, by the published lists.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3), dtype=np.uint8),
                    "label": tfds.features.ClassLabel(num_classes=NUM_CLASSES),
                    "file_name": tfds.features.Text(),
                }
            ),
            supervised_keys=("image", "label"),
            homepage=_URL,
        )


class PreparedImagenet:
    """The images of tfds's prepared ImageNet by the paths of an ImageNet folder."""

    def __init__(self, builder: tfds.core.DatasetBuilder) -> None:
        self._folder = builder.data_dir
        self._splits: list[Any] = []
        self._places: dict[str, tuple[int, int]] = {}
        for split in builder.info.splits:
            self._splits.append(
                builder.as_data_source(split, decoders={"image": tfds.decode.SkipDecoding()})
            )
            for index, name in enumerate(tfds_datasets.file_names(builder, split)):
                self._places[name] = (len(self._splits) - 1, index)

    def has(self, path: str) -> bool:
        """Whether there is an image of that name; the folders of the path do not matter."""
        return PurePosixPath(path).name in self._places

    def read(self, path: str) -> bytes:
        """The encoded image."""
        split, index = self._places[PurePosixPath(path).name]
        image: bytes = self._splits[split][index]["image"]
        return image

    def where(self, path: str) -> str:
        """The prepared data set and the image's name."""
        return f"{PurePosixPath(path).name} in {self._folder}"

    def size(self, path: str) -> int:
        """Not known without reading it."""
        del path
        return 0

    def fingerprint(self, path: str) -> str:
        """The place among the prepared records, which never change."""
        return f"{self._folder} {self._places[PurePosixPath(path).name]}"


def contents(manual_dir: Path, data_dir: str | None) -> Contents:
    """Reads the lists, and checks that every image they name is there.

    Args:
        manual_dir: the folder with the lists, and with ImageNet's `train` and `val` unless ImageNet
            is prepared.
        data_dir: where prepared data sets lie.

    Raises:
        UserError: a list or the images are missing, or a line is not as it should be.
    """
    imagenet = tfds_datasets.builder("imagenet2012", data_dir)
    # A folder `train` alone may be anything.
    has_folder = all((manual_dir / part).is_dir() for part in ("train", "val"))
    _check_present(manual_dir, imagenet, has_folder=has_folder)
    source = FolderSource(manual_dir) if has_folder else PreparedImagenet(imagenet)
    class_names: dict[int, str] = {}
    splits = {
        split: _read_list(manual_dir / file, source, class_names) for split, file in LISTS.items()
    }
    for split, examples in splits.items():
        missing = set(range(NUM_CLASSES)) - {example.label for example in examples}
        if missing:
            raise UserError(
                f"{manual_dir / LISTS[split]} has no image of class {min(missing)}; each of the "
                f"{NUM_CLASSES} classes needs images in every list"
            )
    names = [class_names[label] for label in range(NUM_CLASSES)]
    return Contents(splits, names, [{"synset": name} for name in names], source)


def _check_present(
    manual_dir: Path, imagenet: tfds.core.DatasetBuilder, *, has_folder: bool
) -> None:
    """Names everything that is missing at once, and what to do about it."""
    missing = [file for file in LISTS.values() if not (manual_dir / file).is_file()]
    remedies = [f"download {', '.join(missing)} from {_URL} into it"] if missing else []
    if not has_folder and not imagenet.is_prepared():
        missing.append("ImageNet's folders train and val")
        remedies.append(
            "unpack ImageNet there, both in a folder a class, or prepare it in "
            f"{imagenet.data_dir} with python -m train.prepare --dataset=imagenet"
        )
    if missing:
        raise absent(missing, manual_dir, remedies)


def _read_list(
    path: Path, source: FolderSource | PreparedImagenet, class_names: dict[int, str]
) -> list[Example]:
    examples = []
    # Bytes that are no text make a line that is no path and class.
    lines = path.read_text("utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        image, _, digits = line.strip().rpartition(" ")
        if not image or not digits.isdecimal() or int(digits) >= NUM_CLASSES:
            raise UserError(
                f"{where}: a line must be a path and a class from 0 to {NUM_CLASSES - 1}; it is "
                f"{line!r}"
            )
        if not source.has(image):
            raise UserError(f"{where}: there is no image {source.where(image)}")
        label, folder = int(digits), PurePosixPath(image).parent.name
        if class_names.setdefault(label, folder) != folder:
            raise UserError(
                f"{where}: class {label} is {class_names[label]} in earlier lines, and {folder} in "
                "this one"
            )
        examples.append(Example(image, label, {"file_name": image}))
    return examples
