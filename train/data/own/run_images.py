"""The images of a run that goes on, some of which may be gone since it began."""

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from typing_extensions import override

from train.data.image_reader import ImageReader
from train.data.listed_files import ListedFiles
from train.data.own import unreadable_images
from train.data.own.found_images import FoundImages
from train.data.own.listing import NO_SIZE, NO_SPLIT, EncodedImages, Listing, Role
from train.data.records import Records
from train.foundation import names

_GONE = "it is gone since the run began"


def of_run(found: FoundImages, listed: ListedFiles, reader: ImageReader) -> FoundImages:
    """The images that a run began with, in the order and with the splits that they had.

    Images that are gone are still among them, and cannot be read. So the order of the examples, the
    classes and the splits are those of the run, whatever was left out.

    Args:
        found: the images as they are now.
        listed: the images as they were when the run began.
        reader: reads the images.

    Returns:
        The images of the run; `found` as it is, with another digest, if something else has changed
        than that images are gone or can no longer be read.
    """
    if found.digest == listed.digest:
        return found
    now = found.listing
    # A copy on another file system may have its names in another form of Unicode.
    places = {names.same_form(path): index for index, path in enumerate(now.paths)}
    place = np.array([places.get(names.same_form(path), -1) for path in listed.paths])
    kept = np.flatnonzero(place >= 0)
    at = place[kept]
    if len(kept) < len(now) or not _same_classes_and_splits(now, at, listed, kept):
        return found
    sizes, before = found.sizes[at], listed.sizes[kept]
    is_other = sizes != before
    if len(kept) == len(listed.paths) and not is_other.any():
        # All files are there, and were split in another way.
        return found
    of_run = FoundImages(
        Listing(
            now.root,
            listed.paths,
            listed.labels,
            listed.roles,
            listed.class_names,
            listed.unseen_class_names,
            frozenset(map(Role, listed.given)),
        ),
        listed.sizes,
        _Placed(found.source, listed.paths, place),
        listed.digest,
    )
    changed = kept[is_other & (sizes != NO_SIZE) & (before != NO_SIZE)]
    records = Records(of_run.source, changed, str(now.root), reader)
    readable = (unreadable_images.why(records, index) is None for index in range(len(changed)))
    return found if any(readable) else of_run


def _same_classes_and_splits(
    now: Listing, at: np.ndarray, listed: ListedFiles, kept: np.ndarray
) -> bool:
    """Whether the images that are still there have their class, and were given in their split."""
    classes = _classes((*now.class_names, *now.unseen_names), now.labels[at])
    before = _classes((*listed.class_names, *listed.unseen_class_names), listed.labels[kept])
    roles, roles_before = now.roles[at], listed.roles[kept]
    is_same = _given_role(roles, now.given) == _given_role(roles_before, listed.given)
    # A class whose training images are gone may be left out now.
    has_role = is_same | (roles == NO_SPLIT)
    return bool((classes == before).all() and has_role.all())


def _classes(names: Sequence[str], labels: np.ndarray) -> np.ndarray:
    """The class of each image; empty for classes that are left out, whose labels follow."""
    return np.array((*names, ""))[np.minimum(labels, len(names))]


def _given_role(roles: np.ndarray, given: frozenset[Any]) -> np.ndarray:
    """The role that each image was given with, before some were held out of the training images."""
    return np.where(np.isin(roles, list(given)), roles, Role.TRAIN)


class _Placed(EncodedImages):
    """The images of a source in another order, some of which it lacks.

    Args:
        source: the images.
        paths: the names of those that are wanted.
        place: the index of each in the source, [n]; negative for one that the source lacks.
    """

    def __init__(self, source: EncodedImages, paths: tuple[str, ...], place: np.ndarray) -> None:
        self._source = source
        self._paths = paths
        self._place = place

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: Any) -> Any:
        place = int(self._place[index])
        if place >= 0:
            return self._source[place]
        return {"image": b"", "file_name": self._paths[index], "unreadable": _GONE}

    @override
    def name(self, index: int) -> str:
        return self._paths[index]

    @override
    def open(self, index: int) -> BinaryIO:
        place = int(self._place[index])
        if place >= 0:
            return self._source.open(place)
        raise FileNotFoundError(_GONE)
