"""A data set of the user's own images, whose sizes and classes are found in the files."""

import dataclasses
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from train.configuration.datasets import FolderFields, OwnImageFields
from train.data import augmentation, image_changes, images, photographs, taxonomy
from train.data.crops import ImageReader
from train.data.dataset import Dataset, DatasetSpec
from train.data.own import decoded_images, division, groups, run_images, train_images
from train.data.own.found_images import FoundImages
from train.data.own.listing import ListedFiles, Role
from train.data.records import Records, Split
from train.data.taxonomy import ClassTree

_GROUP = "config.dataset.group"
# The size for the network if the images have many sizes, or are large.
_USUAL_SIZE = 224
# Images of one size up to this one are used as they are.
_LARGEST_AS_IT_IS = 64
_NUM_SAMPLED = 64
_GREYSCALE = frozenset({"1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F"})


@dataclass(frozen=True, kw_only=True)
class OwnImagesSpec(DatasetSpec):
    """Images that are decoded when a batch wants them.

    Attributes:
        fields: `config.dataset`.
        source: finds the images; called with the folder of all prepared data sets.
        files: the files of the run that is resumed; `None` for a new run.
    """

    fields: OwnImageFields
    source: Callable[[str | None], FoundImages]
    files: ListedFiles | None = None

    def load(self, data_dir: str | None, *, seed: int = 0) -> Dataset:
        """Finds the images; see `DatasetSpec`."""
        found, shape = self.find(data_dir), None
        if self.files is not None:
            found = run_images.of_run(found, self.files, self._reader(self.files.image_shape))
            # The images that it was found in may be gone.
            shape = self.files.image_shape if found.digest == self.files.digest else None
        listing = found.listing
        shape = shape or _shape(found, self.fields)
        reader = self._reader(shape)
        source = found.images
        if self.fields.image_size is None and max(shape) <= _LARGEST_AS_IT_IS:
            source = decoded_images.kept(source, reader)

        paths = np.array(listing.paths, object)
        groups = np.array(listing.groups, object) if listing.has_groups else None

        def split(indices: np.ndarray, labels: np.ndarray) -> Split:
            records = Records(source, indices, str(found.root), reader)
            return Split(
                records,
                labels,
                paths[indices],
                None if groups is None else groups[indices],
                None if listing.truths is None else listing.truths[indices],
                None if listing.credits is None else listing.credits[indices],
            )

        train = train_images.chosen(self.fields, listing)
        labels = train_images.labels_of(self.fields, listing, train, seed=seed)
        validation, test = map(listing.of_role, (Role.VALIDATION, Role.TEST))
        return Dataset(
            train=split(train, labels),
            validation=split(validation, listing.labels[validation]),
            test=split(test, listing.labels[test]),
            class_names=listing.class_names,
            unseen_class_names=listing.unseen_names,
            image_shape=shape,
            digest=found.digest,
            files=ListedFiles(found.digest, shape, listing),
            tree=self._tree(listing.class_names),
        )

    def find(self, data_dir: str | None) -> FoundImages:
        """The images with all splits.

        Raises:
            UserError: they cannot be found, lack groups that are asked for, or no classifier can be
                trained with them.
        """
        return grouped(self.source(data_dir), self.fields, self.files).divided(self.fields)

    def going_on(self, files: ListedFiles) -> DatasetSpec:
        """See `DatasetSpec`."""
        return dataclasses.replace(self, files=files)

    def of_shape(self, image_shape: tuple[int, ...]) -> DatasetSpec:
        """The data set with the shape that its images were found to have."""
        height, width, channels = image_shape
        mean, std = (
            # Grey pixels have the mean over the colours.
            values if channels == len(values) else (float(np.mean(values)),) * channels
            for values in (self.mean, self.std)
        )
        reader = self._reader((height, width, channels))
        return dataclasses.replace(self, image_shape=image_shape, mean=mean, std=std, reader=reader)

    def _tree(self, class_names: Sequence[str]) -> ClassTree | None:
        is_nested = isinstance(self.fields, FolderFields) and self.fields.nested
        return taxonomy.folders(class_names) if is_nested else None

    def _reader(self, shape: tuple[int, int, int]) -> ImageReader:
        fields = self.fields
        change = image_changes.CHANGES[fields.augmentation]
        return ImageReader.own(shape, change, upright=fields.respect_exif_orientation)


def make(fields: OwnImageFields, source: Callable[[str | None], FoundImages]) -> OwnImagesSpec:
    """The data set of `config.dataset`, whose images a function finds; see `OwnImagesSpec`."""
    division.check_fractions(fields)
    if isinstance(fields, FolderFields) and fields.group is not None:
        groups.check(fields.group, _GROUP)
    imagenet = fields.normalization == "imagenet"
    return OwnImagesSpec(
        name=fields.name,
        num_classes=None,
        image_shape=None,
        # Images are changed when they are decoded.
        augment=augmentation.unchanged,
        mean=photographs.IMAGENET_MEAN if imagenet else (0.5,) * 3,
        std=photographs.IMAGENET_STD if imagenet else (0.5,) * 3,
        fields=fields,
        source=source,
    )


def grouped(
    found: FoundImages, fields: OwnImageFields, files: ListedFiles | None = None
) -> FoundImages:
    """The images with their groups, if `config.dataset.group` has what finds them.

    Args:
        found: the images.
        fields: `config.dataset`.
        files: the files of the run that resumes, which has their groups.

    Raises:
        UserError: no image has a group.
    """
    grammar = fields.group if isinstance(fields, FolderFields) else None
    if grammar is None:
        return found
    listing = found.listing
    names = run_images.groups(files, listing.paths) or groups.find(
        grammar,
        listing.paths,
        field=_GROUP,
        open_image=found.images.open,
    )
    listing = dataclasses.replace(listing, groups=names)
    return dataclasses.replace(found, listing=listing, grammar=grammar)


def _shape(found: FoundImages, fields: OwnImageFields) -> tuple[int, int, int]:
    """The shape of the pixels, from a sample of the training images."""
    train = found.listing.of_role(Role.TRAIN)
    sampled = train[np.linspace(0, len(train) - 1, _NUM_SAMPLED).astype(int)]
    seen = [
        _size_and_mode(found.images[index]["image"], upright=fields.respect_exif_orientation)
        for index in np.unique(sampled).tolist()
    ]
    known = [one for one in seen if one is not None]
    sizes = {size for size, _ in known}
    grey = bool(known) and all(mode in _GREYSCALE for _, mode in known)
    channels = 1 if grey else 3
    if fields.image_size is not None:
        return fields.image_size, fields.image_size, channels
    if len(sizes) == 1 and max(next(iter(sizes))) <= _LARGEST_AS_IT_IS:
        ((width, height),) = sizes
        return height, width, channels
    return _USUAL_SIZE, _USUAL_SIZE, channels


def _size_and_mode(encoded: bytes, *, upright: bool) -> tuple[tuple[int, int], str] | None:
    """Width, height and mode of an image, from its first bytes; None if it is not an image."""
    try:
        with images.opened(io.BytesIO(encoded)) as image:
            size, mode = image.size, image.mode
            if upright and max(size) <= _LARGEST_AS_IT_IS:
                # It may be turned by 90 degrees. The sizes of larger images are not used.
                size = images.decode(image, "").size
            return size, mode
    except Exception:  # Whatever Pillow raises for a damaged file; reported when it is read.
        return None
