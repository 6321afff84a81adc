"""One look at every image before the first step: which are unreadable, and how the others look.

All of an image is decoded, so that no batch meets an unreadable one. A JPEG file is decoded at an
eighth of its size, which takes a fraction of the time. A run keeps what was `Seen`.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from absl import logging
from PIL import Image

from train.data import images, reading
from train.data.examples import Examples, Split
from train.data.images import UnreadableImageError
from train.data.near_duplicates import SIDE
from train.foundation import names
from train.foundation.console import first_names, tracked
from train.foundation.errors import UserError

# Images that are read before they are wanted, and unreadable ones that a message names.
_AHEAD, _MOST_NAMED = 256, 10
# The bytes of a reason that are sent between processes, and of all that is seen of an image.
_MOST_REASON = 400
_ROW = np.dtype(
    [
        ("copies", np.uint8, SIDE * SIDE),
        ("sizes", np.int32, 2),
        ("is_grey", np.bool_),
        ("reasons", f"S{_MOST_REASON}"),
    ]
)
# The modes of Pillow without colours.
_GREY = frozenset({"1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F"})


class Looks(NamedTuple):
    """What images are like.

    Attributes:
        copies: grey copies, upright, uint8 [n, SIDE * SIDE]; black for unreadable images.
        sizes: width and height, upright, int32 [n, 2]; 0 for unreadable images.
        is_grey: whether an image has no colours, [n].
        reasons: why an image cannot be read, texts [n]; "" if it can.
    """

    copies: np.ndarray
    sizes: np.ndarray
    is_grey: np.ndarray
    reasons: np.ndarray

    def to_rows(self) -> np.ndarray:
        """All of it as bytes, uint8 [n, d], which processes can send; reasons may be cut short."""
        rows = np.zeros(len(self.copies), _ROW)
        reasons = [one.encode()[:_MOST_REASON] for one in self.reasons]
        for name, values in zip(_ROW.fields or (), (*self[:3], reasons), strict=True):
            rows[name] = values
        return rows.view(np.uint8).reshape(len(rows), _ROW.itemsize)

    @classmethod
    def of_rows(cls, rows: np.ndarray) -> "Looks":
        """What `to_rows` made the bytes of."""
        found = np.ascontiguousarray(rows).view(_ROW)[:, 0]
        reasons = np.array([one.decode(errors="replace") for one in found["reasons"]], object)
        return cls(found["copies"], found["sizes"], found["is_grey"], reasons)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a run keeps of its look, so that it looks once.

    Names and reasons are in UTF-8, which names of files need not be; see `names.in_utf8`.

    Attributes:
        digest: of the examples; see `Examples.digest`.
        size: the width and height of all images that can be read; None if they have several sizes.
        grey: whether none of them has colours.
        unreadable: why an image cannot be read, by its name.
        groups: the groups of the examples if they were found in the images, texts [n]; else ().
    """

    digest: str
    size: tuple[int, int] | None
    grey: bool
    unreadable: Mapping[str, str]
    groups: tuple[str, ...] = ()


def look(examples: Examples) -> Looks:
    """Looks at all images of examples that are encoded, in threads."""
    number = len(examples)
    copies = np.zeros((number, SIDE * SIDE), np.uint8)
    sizes, is_grey = np.zeros((number, 2), np.int32), np.zeros(number, bool)
    reasons = np.full(number, "", object)
    found = reading.in_threads(lambda index: _look(examples, index), range(number), ahead=_AHEAD)
    for index, one in enumerate(tracked(found, number, "looking at images")):
        if isinstance(one, str):
            reasons[index] = one
        else:
            copies[index], sizes[index], is_grey[index] = one
    return Looks(copies, sizes, is_grey, reasons)


def kept(examples: Examples, looks: Looks) -> Seen:
    """What a run keeps of a look at all images of a data set, before they are divided."""
    readable = looks.reasons == ""
    sizes = np.unique(looks.sizes[readable], axis=0)
    size = (int(sizes[0, 0]), int(sizes[0, 1])) if len(sizes) == 1 else None
    grey = bool(readable.any() and looks.is_grey[readable].all())
    unreadable = {
        names.in_utf8(examples.name(index)): str(looks.reasons[index])
        for index in np.flatnonzero(~readable).tolist()
    }
    return Seen(digest=examples.digest(), size=size, grey=grey, unreadable=unreadable)


def readable(examples: Examples, seen: Seen, *, skip: bool, how: str) -> Examples:
    """The examples without the images that cannot be read; a warning names these.

    Args:
        examples: some of the examples that were looked at.
        seen: what was seen of them.
        skip: whether images may be left out.
        how: what leaves them out, at the end of the message: "--skip_unreadable leaves them out".

    Raises:
        UserError: some images cannot be read, and none may be left out, or no image of a split can
            be read.
    """
    # A copy on another file system may have its names in another form of Unicode.
    why = {names.same_form(name): reason for name, reason in seen.unreadable.items()}
    called = [names.in_utf8(examples.name(index)) for index in range(len(examples) if why else 0)]
    without = [index for index, name in enumerate(called) if names.same_form(name) in why]
    if not without:
        return examples
    first, *others = (called[index] for index in without)
    named = f"; also {first_names(others, _MOST_NAMED)}" if others else ""
    told = (
        f"{len(without):,} of {len(examples):,} images of {examples.where} cannot be read: "
        f"{why[names.same_form(first)]}{named}"
    )
    if not skip or len(without) == len(examples):
        raise UserError(told if skip else f"{told}; {how}")
    logging.warning("%s; they are left out", told)
    left = examples.take(np.delete(np.arange(len(examples)), without))
    for split in (Split.VALIDATION, Split.TEST):
        if split in examples.splits and split not in left.splits:
            # It would be held out of the training images.
            raise UserError(f"{told}; none for {split.word} is left")
    return left


def _look(examples: Examples, index: int) -> tuple[np.ndarray, tuple[int, int], bool] | str:
    """The grey copy of an image, its size, and whether it is grey; or why it cannot be read."""
    name = names.in_utf8(examples.name(index))
    try:
        encoded = examples.encoded(index)
    except OSError as error:
        return f"cannot read {name}: {error.strerror or error}"
    try:
        picture, size, is_grey = _decoded(encoded)
    except Exception:  # Whatever a damaged file makes Pillow's many readers raise.
        try:
            # As a batch reads it.
            picture = images.decode(encoded, name)
        except UnreadableImageError as unreadable:
            return str(unreadable)
        size, is_grey = picture.size, False
    small = picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(small).reshape(-1), size, is_grey


def _decoded(encoded: bytes) -> tuple[Image.Image, tuple[int, int], bool]:
    """The image, smaller if that is fast, the size that it has, and whether it is grey."""
    with images.opened(io.BytesIO(encoded)) as image:
        whole, is_grey = image.size, image.mode in _GREY
        image.draft("L", (SIDE, SIDE))
        part = image.size
        # A small square does not tell whether it was turned.
        is_clear = part[0] != part[1] or whole[0] == whole[1]
        picture = images.decode(image if is_clear else encoded, "")
    sizes = {part: whole, part[::-1]: whole[::-1]}
    return picture, sizes.get(picture.size, picture.size), is_grey
