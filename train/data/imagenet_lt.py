"""ImageNet-LT: a long-tailed part of ImageNet by three published lists; nothing is copied.

A list has one line `PATH LABEL` per image, for example `train/n01440764/n01440764_190.JPEG 0`.
There are 115,846 images for training, 20,000 of ImageNet's training images for validation, and the
50,000 official validation images for testing. The folder `imagenet_lt` of all prepared data has the
lists, and ImageNet's folders `train` and `val` or links to them, each with a folder for each class.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from train.configuration.datasets import CheckedFields
from train.data import augmentation, photographs
from train.data.dataset import Dataset, DatasetFamily, DatasetSpec
from train.data.own.encoded_images import NO_SIZE, Files, file_sizes
from train.data.own.listing import Listing, Role
from train.data.records import Records, Split
from train.foundation import messages
from train.foundation.errors import UserError

NUM_CLASSES = 1000
_URL = "https://github.com/facebookresearch/classifier-balancing/tree/main/data/ImageNet_LT"
LISTS = {
    Role.TRAIN: "ImageNet_LT_train.txt",
    Role.VALIDATION: "ImageNet_LT_val.txt",
    Role.TEST: "ImageNet_LT_test.txt",
}


@dataclass(frozen=True, kw_only=True)
class ImagenetLtSpec(DatasetSpec):
    """ImageNet-LT, as files."""

    def load(self, data_dir: str | None, *, seed: int = 0) -> Dataset:
        """Reads the lists; see `DatasetSpec`."""
        # Imported here because tensorflow-datasets takes long to import.
        import tensorflow_datasets as tfds  # noqa: PLC0415

        del seed
        folder = Path(data_dir or tfds.core.constants.DATA_DIR).expanduser().absolute()
        root = folder / self.name
        listing = _listed(root)
        reader, images = self.image_reader, Files(root, listing.paths)

        def split(role: Role) -> Split:
            indices = listing.of_role(role)
            records = Records(images, indices, str(root), reader)
            return Split(records, listing.labels[indices])

        return Dataset(
            train=split(Role.TRAIN),
            validation=split(Role.VALIDATION),
            test=split(Role.TEST),
            class_names=listing.class_names,
            image_shape=photographs.READER.shape,
            digest=listing.digest(),
        )


def _listed(root: Path) -> Listing:
    """The images of the lists, in their order.

    Raises:
        UserError: a list or an image is missing, or a line is not as it should be.
    """
    missing = [name for name in LISTS.values() if not (root / name).is_file()]
    if missing:
        raise UserError(
            field="config.dataset.data_dir",
            must_be=f"a folder with {root.name}, which has the lists of {_URL} and ImageNet's "
            "folders train and val, or links to them",
            but=f"{root} does not have {', '.join(missing)}",
        )
    paths: list[str] = []
    labels: list[int] = []
    roles: list[int] = []
    class_names: dict[int, str] = {}
    for role, name in LISTS.items():
        # A file that is not text then has a line without a path and a class, which is refused.
        lines = (root / name).read_text("utf-8-sig", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            path, _, digits = line.strip().rpartition(" ")
            label = int(digits) if digits.isdecimal() else NUM_CLASSES
            folder = PurePosixPath(path).parent.name
            if label >= NUM_CLASSES or class_names.setdefault(label, folder) != folder:
                raise UserError(
                    f"{root / name}, line {number}: a line must be a path and a class from 0 to "
                    f"{NUM_CLASSES - 1}, each with one folder; it is {line!r}"
                )
            paths.append(path)
            labels.append(label)
            roles.append(role)
    listing = Listing(
        paths=tuple(paths),
        labels=np.array(labels, np.int32),
        roles=np.array(roles, np.int8),
        class_names=tuple(class_names.get(label, "") for label in range(NUM_CLASSES)),
        given=frozenset(LISTS),
        sizes=file_sizes(root, paths),
    )
    _check_complete(listing, root)
    return listing


def _check_complete(listing: Listing, root: Path) -> None:
    """Refuses lists without an image of some class, or with images that are not there."""
    for role, name in LISTS.items():
        without = np.setdiff1d(np.arange(NUM_CLASSES), listing.labels[listing.of_role(role)])
        if without.size:
            raise UserError(f"{root / name} has no image of class {without[0]}; each has images")
    absent = [listing.paths[index] for index in np.flatnonzero(listing.sizes == NO_SIZE)]
    if absent:
        raise UserError(f"{root} lacks images of its lists: {messages.in_words(absent, 'images')}")


def _spec(fields: CheckedFields) -> DatasetSpec:
    return ImagenetLtSpec(
        name=fields.name,
        num_classes=NUM_CLASSES,
        image_shape=photographs.READER.shape,
        augment=augmentation.random_flip,
        mean=photographs.IMAGENET_MEAN,
        std=photographs.IMAGENET_STD,
        reader=photographs.READER,
        attribution=photographs.IMAGENET_ATTRIBUTION,
    )


IMAGENET_LT = DatasetFamily(_spec, fields=CheckedFields)
