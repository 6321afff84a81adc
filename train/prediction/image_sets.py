"""Sets of classes for image files: threads read the files, the device classifies batches."""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train.data import grouping, look
from train.data.crops import ImageReader
from train.data.examples import Examples
from train.data.images import UnreadableImageError
from train.data.sources.folder import Files
from train.foundation import reading
from train.prediction import batching, class_sets, image_files, inference
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.class_sets import ClassSet, Scored, Unreadable
from train.prediction.thumbnails import Photograph, Thumbnail
from train.prediction.trained import TrainedClassifier

_LARGEST_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class ImageSet(ClassSet):
    """The set of an image.

    Attributes:
        path: the path of its file.
        thumbnail: a thumbnail of the image, if requested.
    """

    path: Path
    thumbnail: Thumbnail | None

    @property
    def origin(self) -> dict[str, Any]:
        """The path."""
        return {"path": str(self.path)}

    @property
    def title(self) -> str:
        """The name of the file."""
        return self.path.name

    @property
    def photographs(self) -> tuple[Photograph, ...]:
        """The image."""
        return (Photograph(self.path, self.thumbnail),)


@dataclass(frozen=True)
class ImageFiles:
    """Image files to make sets for.

    Attributes:
        files: their paths.
    """

    files: Sequence[Path]
    described = "one of the images"

    def __len__(self) -> int:
        return len(self.files)

    def check(self, classifier: TrainedClassifier) -> None:
        """Refuses a classifier that does not take images.

        Raises:
            UserError: it does not take images.
        """
        classifier.check_takes("images")

    def take(self, places: np.ndarray) -> "ImageFiles":
        """Some of the files."""
        return ImageFiles([self.files[place] for place in places])

    def make_sets(
        self, classifier: TrainedClassifier, rule: CalibratedRule, *, thumbnails: bool
    ) -> "Iterator[ImageSet | Unreadable]":
        """The set of each image; see `make_sets`."""
        return make_sets(classifier, rule, self.files, thumbnails=thumbnails)

    def inputs(
        self, classifier: TrainedClassifier, sets: Sequence[ClassSet]
    ) -> list[np.ndarray | None]:
        """The pixels of the image of each set; None for a file that cannot be read any more."""
        paths = [one.path for one in sets if isinstance(one, ImageSet)]
        read = functools.partial(_read, reader=classifier.spec.image_reader)
        wanted = [(path, False) for path in paths]
        return [
            None if isinstance(one, Unreadable) else one.pixels
            for one in reading.in_threads(read, wanted, ahead=_LARGEST_BATCH)
        ]

    def find_groups(self, grammar: str) -> np.ndarray:
        """The group of each image by `grouping`.

        Raises:
            UserError: the grammar is wrong, or finds no group.
        """
        names, copies = [str(path) for path in self.files], None
        if grammar == grouping.NEAR_DUPLICATES:
            paths = np.array(names, object)
            found = Examples.of_source(
                Files(Path(), paths), np.full(len(paths), -1), (), "--images", names=paths
            )
            copies = look.look(found).copies
        return grouping.find(grammar, names, field="--group", copies=copies, may_be_one=True)

    def describe(self, indices: Sequence[int]) -> dict[str, Any]:
        """Some images, as fields of a line of JSON."""
        return {"paths": [str(self.files[index]) for index in indices]}

    def score(
        self, classifier: TrainedClassifier, orders: Sequence[np.ndarray], thumbnails: np.ndarray
    ) -> Iterator[Scored | Unreadable]:
        """The probabilities of the images at some indices, in their order.

        Args:
            classifier: the classifier.
            orders: the indices; each array starts a new batch.
            thumbnails: whether to make a thumbnail of each image of all, [n].
        """
        size = batching.batch_size(len(self), _LARGEST_BATCH)
        wanted = [
            [(self.files[index], bool(thumbnails[index])) for index in batch]
            for batch in batching.divided(orders, size)
        ]
        batches = _read_batches(classifier, wanted, size)
        for entries, probabilities in inference.infer_scores(classifier, batches):
            for entry, row in zip(entries, probabilities, strict=False):
                if isinstance(entry, Unreadable):
                    yield entry
                else:
                    yield Scored(row, Photograph(entry.path, entry.thumbnail))


@dataclass(frozen=True)
class _Picture:
    """An image as the input of the classifier."""

    path: Path
    pixels: np.ndarray
    thumbnail: Thumbnail | None


def make_sets(
    classifier: TrainedClassifier,
    rule: CalibratedRule,
    paths: Sequence[Path],
    *,
    thumbnails: bool,
) -> Iterator[ImageSet | Unreadable]:
    """The set of each image, in the order of the paths. Few images are in memory at a time.

    The batch size is 64, or the number of images if it is smaller. The last bits of a probability
    may depend on it, and on the place of the image in its batch.

    Args:
        classifier: the classifier.
        rule: the rule that makes the sets.
        paths: the paths of the files.
        thumbnails: whether to make a thumbnail of each image.
    """
    size = batching.batch_size(len(paths), _LARGEST_BATCH)
    wanted = [
        [(path, thumbnails) for path in paths[start : start + size]]
        for start in range(0, len(paths), size)
    ]
    batches = _read_batches(classifier, wanted, size)
    for entries, probabilities, answer in inference.infer_batches(classifier, rule, batches):
        yield from _make_sets(entries, probabilities, answer, rule)


def _read_batches(
    classifier: TrainedClassifier,
    wanted: Sequence[Sequence[tuple[Path, bool]]],
    size: int,
) -> Iterator[tuple[list[_Picture | Unreadable], np.ndarray]]:
    """The images of each batch with the unreadable files between them, and the batch.

    Args:
        classifier: the classifier.
        wanted: by batch, the paths of the files, and whether to make a thumbnail of each.
        size: of a batch.
    """
    read = functools.partial(_read, reader=classifier.spec.image_reader)
    every = itertools.chain.from_iterable(wanted)
    pictures = reading.in_threads(read, every, ahead=_LARGEST_BATCH)
    for batch in wanted:
        entries = list(itertools.islice(pictures, len(batch)))
        yield entries, _pad(entries, size, classifier.image_shape)


def _read(wanted: tuple[Path, bool], reader: ImageReader) -> _Picture | Unreadable:
    path, thumbnail = wanted
    try:
        image = image_files.read(path, reader)
        pixels = reader.pixels(image, str(path))
    except UnreadableImageError as error:
        return Unreadable(path, str(error))
    return _Picture(path, pixels, Thumbnail.of(image) if thumbnail else None)


def _pad(
    entries: Iterable[_Picture | Unreadable], size: int, image_shape: tuple[int, ...]
) -> np.ndarray:
    """The pixels of the images at their places, with zeros for what cannot be read."""
    batch = np.zeros((size, *image_shape), np.uint8)
    for row, entry in zip(batch, entries, strict=False):
        if isinstance(entry, _Picture):
            row[...] = entry.pixels
    return batch


def _make_sets(
    entries: Sequence[_Picture | Unreadable],
    probabilities: np.ndarray,
    answer: Sequence[np.ndarray],
    rule: CalibratedRule,
) -> Iterator[ImageSet | Unreadable]:
    for row, entry in enumerate(entries):
        if isinstance(entry, Unreadable):
            yield entry
            continue
        yield ImageSet(
            path=entry.path,
            thumbnail=entry.thumbnail,
            **class_sets.members(probabilities[row], answer, row, rule),
        )
