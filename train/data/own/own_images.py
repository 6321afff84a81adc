"""A data set of people's own image files, which are read where they lie."""

import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from train.data import augmentation, photographs
from train.data.dataset import Dataset, DatasetSpec
from train.data.own import listing
from train.data.own.listing import Listing, Role
from train.data.own.own_image_reader import CHANGES, OwnImageReader
from train.data.records import Records, Split
from train.foundation import fields
from train.foundation.errors import UserError

# The fields of `config.dataset` of all kinds of own images.
OPTIONS: Mapping[str, fields.Field] = {
    # Where the images are.
    "path": fields.text(),
    # Of every class, for splits that are not given.
    "validation_fraction": fields.Number(at_least=0, below=1),
    "test_fraction": fields.Number(at_least=0, below=1),
    # The height and width that the network gets; None to find it in the images.
    "image_size": fields.optional(fields.integer(1, 4096)),
    "augmentation": fields.one_of(CHANGES),
    "respect_exif_orientation": fields.boolean(),
    "normalization": fields.one_of(("imagenet", "half")),
}
# What the network gets where the images are of many sizes, or large.
_USUAL_SIZE = 224
# Images of one size up to this one are used as they are.
_LARGEST_AS_IT_IS = 64
_NUM_SAMPLED = 64
_GREYSCALE = frozenset({"1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F"})


class Files(Sequence[dict[str, Any]]):
    """Image files as the examples of `Records`."""

    def __init__(self, root: Path, paths: tuple[str, ...]) -> None:
        self._root = root
        self._paths = paths

    def __len__(self) -> int:
        """The number of files."""
        return len(self._paths)

    def __getitem__(self, index: Any) -> Any:
        """The bytes of a file and its name; no bytes, which are no image, if it cannot be read."""
        path = self._root / self._paths[index]
        try:
            encoded = path.read_bytes()
        except OSError:
            encoded = b""
        return {"image": encoded, "file_name": self._paths[index]}


@dataclass(frozen=True, kw_only=True)
class OwnImagesSpec(DatasetSpec):
    """Image files that are read where they lie.

    Attributes:
        find: lists the files.
        image_size: the height and width that the network gets; `None` to find it in the images.
        upright: whether images are rotated as their EXIF orientation says.
        changes: how training images are changed, one of `CHANGES`.
    """

    find: Callable[[], Listing]
    image_size: int | None
    upright: bool
    changes: str

    def load(self, data_dir: str | None, *, seed: int = 0) -> Dataset:
        """Lists the files; see `DatasetSpec`."""
        del data_dir, seed  # They lie where `config.dataset.path` says, and have no noise.
        found = self.find()
        sizes = found.sizes()
        listing.warn_of_duplicates(found, sizes)
        shape = _shape(found, self.image_size)
        reader = OwnImageReader(shape, self.upright, self.changes)
        source = Files(found.root, found.paths)

        def split(role: Role) -> Split:
            indices = found.of_role(role)
            return Split(
                Records(source, indices, str(found.root), reader), found.labels[indices].copy()
            )

        return Dataset(
            train=split(Role.TRAIN),
            validation=split(Role.VALIDATION),
            test=split(Role.TEST),
            class_names=found.class_names,
            image_shape=shape,
            digest=found.digest(sizes),
        )

    def of_shape(self, image_shape: tuple[int, int, int]) -> DatasetSpec:
        """The data set with the shape that its images were found to have."""
        channels = image_shape[-1]
        mean, std = (
            # Of grey pixels, the mean over the colours.
            values if channels == len(values) else (float(np.mean(values)),) * channels
            for values in (self.mean, self.std)
        )
        reader = OwnImageReader(image_shape, self.upright, self.changes)
        return dataclasses.replace(self, image_shape=image_shape, mean=mean, std=std, reader=reader)


def make(config: Mapping[str, Any], find: Callable[[], Listing]) -> OwnImagesSpec:
    """The data set of `config.dataset`, whose files a function lists."""
    fractions = ("validation_fraction", "test_fraction")
    if sum(config[name] for name in fractions) >= 1:
        names = " and ".join(f"config.dataset.{name}" for name in fractions)
        values = " and ".join(str(config[name]) for name in fractions)
        raise UserError(f"{names} must leave images for training; got {values}")
    imagenet = config["normalization"] == "imagenet"
    return OwnImagesSpec(
        name=config["name"],
        num_classes=None,
        image_shape=None,
        # Images are changed where they are decoded.
        augment=augmentation.unchanged,
        mean=photographs.IMAGENET_MEAN if imagenet else (0.5,) * 3,
        std=photographs.IMAGENET_STD if imagenet else (0.5,) * 3,
        find=find,
        image_size=config["image_size"],
        upright=config["respect_exif_orientation"],
        changes=config["augmentation"],
    )


def _shape(found: Listing, image_size: int | None) -> tuple[int, int, int]:
    """The shape of the pixels, from a sample of the training images."""
    train = found.of_role(Role.TRAIN)
    sampled = train[np.linspace(0, len(train) - 1, _NUM_SAMPLED).astype(int)]
    seen = [_size_and_mode(found.root / found.paths[index]) for index in np.unique(sampled)]
    known = [one for one in seen if one is not None]
    sizes = {size for size, _ in known}
    grey = bool(known) and all(mode in _GREYSCALE for _, mode in known)
    channels = 1 if grey else 3
    if image_size is not None:
        return image_size, image_size, channels
    if len(sizes) == 1 and max(next(iter(sizes))) <= _LARGEST_AS_IT_IS:
        ((width, height),) = sizes
        return height, width, channels
    return _USUAL_SIZE, _USUAL_SIZE, channels


def _size_and_mode(path: Path) -> tuple[tuple[int, int], str] | None:
    """Width and height of an image and its mode, from its first bytes; None if it is none."""
    try:
        with Image.open(io.BytesIO(path.read_bytes())) as image:
            return image.size, image.mode
    except Exception:  # Whatever a damaged file makes Pillow's many readers raise; told when read.
        return None
