"""Thumbnails of the examples of a split, in memory or still encoded."""

from collections.abc import Callable

import numpy as np
from PIL import Image

from train.data.examples import Examples
from train.data.images import UnreadableImageError
from train.prediction.thumbnails import LONGEST_SIDE, Thumbnail


def of_split(
    split: Examples, inputs: str, *, longest_side: int = LONGEST_SIDE
) -> Callable[[int], Thumbnail | None] | None:
    """Makes the thumbnail of the example at a place; None for a split of no images.

    Args:
        split: the split.
        inputs: what its examples are; see `DatasetSpec.inputs`.
        longest_side: of a thumbnail, in pixels.
    """
    if inputs != "images":
        return None
    if split.are_encoded:
        return lambda place: _of_encoded(split, place, longest_side)
    return lambda place: _of_pixels(split.rows(np.array([place]))[0], longest_side)


def _of_encoded(split: Examples, place: int, longest_side: int) -> Thumbnail | None:
    assert split.reader is not None
    try:
        image = split.reader.decode(split.encoded(place), split.name(place))
    except (OSError, UnreadableImageError):
        # It was removed or damaged since it was evaluated.
        return None
    return Thumbnail.of(image, longest_side)


def _of_pixels(pixels: np.ndarray, longest_side: int) -> Thumbnail:
    grey = pixels.shape[-1] == 1
    return Thumbnail.of(
        Image.fromarray(pixels[..., 0] if grey else pixels).convert("RGB"), longest_side
    )
