"""Writes ImageNet-LT: the images of ImageNet that three published lists name.

A list has one line `PATH LABEL` per image, for example `train/n01440764/n01440764_190.JPEG 0`.
There are 115,846 images for training, 20,000 of ImageNet's training images for validation, and the
50,000 official validation images for testing. They come from an ImageNet folder or from tfds's
prepared ImageNet.
"""

from pathlib import Path, PurePosixPath
from typing import Any

import tensorflow_datasets as tfds

from train.data.imagenet_lt import NUM_CLASSES, URL
from train.data.preparing import dataset_writer, imagenet, tfds_datasets
from train.data.preparing.dataset_writer import Contents
from train.data.preparing.shards import Example
from train.data.preparing.sources import FolderSource, absent
from train.foundation.errors import UserError
from train.sharing.share_flags import NOT_SHARED, ChosenShare

LISTS = {
    "train": "ImageNet_LT_train.txt",
    "validation": "ImageNet_LT_val.txt",
    "test": "ImageNet_LT_test.txt",
}


class PreparedImagenet:
    """The images of tfds's prepared ImageNet by the paths of an ImageNet folder."""

    def __init__(self, builder: tfds.core.DatasetBuilder) -> None:
        self._folder = builder.data_dir
        self._splits: list[Any] = []
        self._indices: dict[str, tuple[int, int]] = {}
        for split in builder.info.splits:
            self._splits.append(
                builder.as_data_source(split, decoders={"image": tfds.decode.SkipDecoding()})
            )
            for index, name in enumerate(imagenet.file_names(builder, split)):
                self._indices[name] = (len(self._splits) - 1, index)

    def has(self, path: str) -> bool:
        """Whether there is an image of that file name; folders of the path are ignored."""
        return PurePosixPath(path).name in self._indices

    def read(self, path: str) -> bytes:
        """The encoded image."""
        split, index = self._indices[PurePosixPath(path).name]
        image: bytes = self._splits[split][index]["image"]
        return image

    def where(self, path: str) -> str:
        """The prepared data set and the image's name."""
        return f"{PurePosixPath(path).name} in {self._folder}"

    def size(self, path: str) -> int:
        """0, as the size is not known before the image is read."""
        del path
        return 0

    def fingerprint(self, path: str) -> str:
        """The index among the prepared records, which never change."""
        return f"{self._folder} {self._indices[PurePosixPath(path).name]}"


def prepare(
    builder: tfds.core.DatasetBuilder,
    manual_dir: Path,
    *,
    skip_unreadable: bool,
    shared: ChosenShare = NOT_SHARED,
) -> dict[str, int]:
    """Writes ImageNet-LT, and returns the numbers of images left out, by split.

    Args:
        builder: of ImageNet-LT.
        manual_dir: the folder with the lists, and with ImageNet's `train` and `val` unless ImageNet
            is prepared.
        skip_unreadable: whether images that cannot be decoded are left out.
        shared: how this process takes part in the work.
    """
    # Beside the folder of this data set, which has one folder per version.
    data_dir = Path(builder.data_dir).parents[1]
    contents = list_images(manual_dir, str(data_dir))
    return dataset_writer.write(builder, contents, skip_unreadable=skip_unreadable, shared=shared)


def list_images(manual_dir: Path, data_dir: str) -> Contents:
    """Reads the lists, and checks that every image they name is there.

    Args:
        manual_dir: the folder with the lists, and with ImageNet's `train` and `val` unless ImageNet
            is prepared.
        data_dir: the folder of all prepared data sets.

    Raises:
        UserError: a list or the images are missing, or a line is not as it should be.
    """
    prepared = tfds_datasets.builder("imagenet2012", data_dir)
    # A single folder called `train` may be anything.
    has_folder = all((manual_dir / part).is_dir() for part in ("train", "val"))
    _check_present(manual_dir, prepared, has_folder=has_folder)
    source = FolderSource(manual_dir) if has_folder else PreparedImagenet(prepared)
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
    manual_dir: Path, prepared: tfds.core.DatasetBuilder, *, has_folder: bool
) -> None:
    """Names all missing files at once, and what to do about them."""
    missing = [file for file in LISTS.values() if not (manual_dir / file).is_file()]
    remedies = [f"download {', '.join(missing)} from {URL} into it"] if missing else []
    if not has_folder and not prepared.is_prepared():
        missing.append("ImageNet's folders train and val")
        remedies.append(
            "unpack ImageNet there, both in a folder a class, or prepare it in "
            f"{prepared.data_dir} with python -m train.prepare --dataset=imagenet"
        )
    if missing:
        raise absent(missing, manual_dir, remedies)


def _read_list(
    path: Path, source: FolderSource | PreparedImagenet, class_names: dict[int, str]
) -> list[Example]:
    examples = []
    # A file that is not text then has a line without a path and a class, which is refused.
    lines = path.read_text("utf-8-sig", errors="replace").splitlines()
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
