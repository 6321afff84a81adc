"""Thumbnails of the examples of a split, in memory or still encoded."""

from collections.abc import Callable

import numpy as np
from PIL import Image

from train.data.images import UnreadableImageError
from train.data.records import Records, Split
from train.prediction.thumbnails import LONGEST_SIDE, Thumbnail


def of_split(
    split: Split, inputs: str, *, longest_side: int = LONGEST_SIDE
) -> Callable[[int], Thumbnail | None] | None:
    """Makes the thumbnail of the example at a place; None for a split of no images.

    Args:
        split: the split.
        inputs: what its examples are; see `DatasetSpec.inputs`.
        longest_side: of a thumbnail, in pixels.
    """
    images = split.images
    if inputs != "images":
        return None
    if isinstance(images, Records):
        return lambda place: _of_record(images, place, longest_side)
    if isinstance(images, np.ndarray):
        return lambda place: _of_pixels(images[place], longest_side)
    return None


def _of_record(images: Records, place: int, longest_side: int) -> Thumbnail | None:
    try:
        return Thumbnail.of(images.reader.decode(*images.encoded(place)), longest_side)
    except UnreadableImageError:
        # It was removed or damaged since it was evaluated.
        return None


def _of_pixels(pixels: np.ndarray, longest_side: int) -> Thumbnail:
    grey = pixels.shape[-1] == 1
    return Thumbnail.of(
        Image.fromarray(pixels[..., 0] if grey else pixels).convert("RGB"), longest_side
    )
