"""The images of a run that is resumed; some may be gone since it started."""

import dataclasses
import errno
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
from typing_extensions import override

from train.data.crops import ImageReader
from train.data.own import unreadable_images
from train.data.own.encoded_images import NO_SIZE, EncodedImages, NamedImages
from train.data.own.found_images import FoundImages
from train.data.own.listing import NO_SPLIT, ListedFiles, Listing, Role
from train.data.records import Records
from train.foundation import names

_GONE = "it was removed after the run started"


def of_run(found: FoundImages, listed: ListedFiles, reader: ImageReader) -> FoundImages:
    """The images that a run started with, in the order and with the splits that they had.

    Images that are gone are still among them, and cannot be read. So the order of the examples, the
    classes and the splits do not depend on what was left out.

    Args:
        found: the images as they are now.
        listed: the images as they were when the run started.
        reader: reads the images.

    Returns:
        The images of the run; `found` as it is, with another digest, if something else has changed
        than that images are gone or can no longer be read.
    """
    now, then = found.listing, listed.listing
    if found.digest == listed.digest:
        # The digest does not depend on the groups.
        same = now.groups if then.groups is None else then.groups
        return dataclasses.replace(found, listing=dataclasses.replace(now, groups=same))
    # A copy on another file system may have its names in another form of Unicode.
    places = {names.same_form(path): index for index, path in enumerate(now.paths)}
    place = np.array([places.get(names.same_form(path), -1) for path in then.paths])
    kept = np.flatnonzero(place >= 0)
    at = place[kept]
    if len(kept) < len(now) or not _same_classes_and_splits(now, at, then, kept):
        return found
    sizes, before = now.sizes[at], then.sizes[kept]
    is_other = sizes != before
    if len(kept) == len(then) and not is_other.any():
        # All files are there, and were split in another way.
        return found
    images = _Placed(found.images, then.paths, place)
    credited = None if now.credits is None else now.credits.placed(place)
    listing = dataclasses.replace(then, credits=credited)
    of_run = dataclasses.replace(found, listing=listing, images=images)
    changed = kept[is_other & (sizes != NO_SIZE) & (before != NO_SIZE)]
    records = Records(images, changed, str(found.root), reader)
    readable = (unreadable_images.why(records, index) is None for index in range(len(changed)))
    return found if any(readable) else of_run


def groups(listed: ListedFiles | None, paths: Sequence[str]) -> tuple[str, ...] | None:
    """The groups that images had when a run started; None if an image is new, or for a new run."""
    if listed is None or listed.listing.groups is None:
        return None
    then = listed.listing
    known = dict(zip(map(names.same_form, then.paths), listed.listing.groups, strict=True))
    found = [known.get(names.same_form(path)) for path in paths]
    return tuple(group for group in found if group is not None) if None not in found else None


def _same_classes_and_splits(now: Listing, at: np.ndarray, then: Listing, kept: np.ndarray) -> bool:
    """Whether the images that are still there have their class, and were given in their split."""
    classes, before = _classes(now, at), _classes(then, kept)
    is_same = _given_roles(now, at) == _given_roles(then, kept)
    # A class whose training images are gone may be left out now.
    has_role = is_same | (now.roles[at] == NO_SPLIT)
    return bool((classes == before).all() and has_role.all())


def _classes(listing: Listing, indices: np.ndarray) -> np.ndarray:
    """The class of some images; empty for classes that are left out, whose labels follow."""
    names = (*listing.class_names, *listing.unseen_names)
    return np.array((*names, ""))[np.minimum(listing.labels[indices], len(names))]


def _given_roles(listing: Listing, indices: np.ndarray) -> np.ndarray:
    """The role that images were given with, before some were held out of the training images."""
    roles = listing.roles[indices]
    return np.where(np.isin(roles, list(listing.given)), roles, Role.TRAIN)


class _Placed(NamedImages):
    """The images of a source in another order; the source may lack some.

    Args:
        images: the images that there are.
        paths: the names of those that are wanted.
        place: the index of each in the source, [n]; negative for one that the source lacks.
    """

    def __init__(self, images: EncodedImages, paths: tuple[str, ...], place: np.ndarray) -> None:
        super().__init__(paths)
        self._images = images
        self._place = place

    @override
    def read(self, index: int) -> bytes:
        return self._images.read(self._at(index))

    @override
    def open(self, index: int) -> BinaryIO:
        return self._images.open(self._at(index))

    def _at(self, index: int) -> int:
        """The index of an image in the source."""
        place = int(self._place[index])
        if place < 0:
            raise FileNotFoundError(errno.ENOENT, _GONE)
        return place
