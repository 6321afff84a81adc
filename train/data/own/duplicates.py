"""Finds images of different splits with the same content."""

import hashlib
from collections.abc import Hashable, Iterable, Iterator

import numpy as np
from absl import logging

from train.data.own.encoded_images import EncodedImages
from train.data.own.listing import NO_SPLIT, Listing
from train.foundation.messages import in_words


def warn(listing: Listing, images: EncodedImages) -> None:
    """Warns of images of different splits with the same content.

    Only images of equal size and mark are read. In a million photographs, some 100 GB, nearly every
    image has the size of another one. Images without a size are not compared.
    """
    found = []
    used = np.flatnonzero((listing.roles != NO_SPLIT) & (listing.sizes > 0))
    groups = (used[indices] for indices in _groups(listing.sizes[used]))
    for indices in _equal_marks(groups, listing.roles, images):
        contents: dict[bytes, int] = {}
        for index in indices:
            content = images[index]["image"]
            if not content:
                continue  # No image, or an unreadable one; reported when it is needed.
            digest = hashlib.sha256(content).digest()
            first = contents.setdefault(digest, index)
            if listing.roles[first] != listing.roles[index]:
                found.append(f"{listing.paths[index]} (also {listing.paths[first]})")
    if found:
        logging.warning(
            "images of one split are in another too, which makes its accuracies too good: %s",
            in_words(found, "images"),
        )


def _equal_marks(
    groups: Iterable[np.ndarray], roles: np.ndarray, images: EncodedImages
) -> Iterator[list[int]]:
    """The indices of each group with equal marks and several roles."""
    for indices in groups:
        if len(np.unique(roles[indices])) == 1:
            continue
        marked: dict[Hashable, list[int]] = {}
        for index in indices.tolist():
            marked.setdefault(images.mark(index), []).append(index)
        yield from (equal for equal in marked.values() if len(set(roles[equal])) > 1)


def _groups(values: np.ndarray) -> list[np.ndarray]:
    """The indices of each value that occurs at least twice."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order])) + 1
    return [indices for indices in np.split(order, starts) if len(indices) > 1]
