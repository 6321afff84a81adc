"""Small grey copies of images, by which near-duplicates are found."""

from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
from PIL import Image

from train.data import image_opening, images
from train.data.images import DecodeOptions
from train.foundation.errors import let_through

# The pixels of a side.
SIDE = 16


def make(file: BinaryIO, options: DecodeOptions = images.USUAL) -> np.ndarray | None:
    """A grey copy of an image, upright, uint8 [SIDE * SIDE]; None if it cannot be read.

    A JPEG file is decoded at an eighth of its size, which takes half of the time.

    Args:
        file: the file, at its start.
        options: what is made of images that are not opaque, or not complete.
    """
    try:
        with image_opening.opened(file) as image:
            header = image if image.format in ("JPEG", "MPO") else None
            if header is not None:
                header.draft("L", (SIDE, SIDE))
            file.seek(0)
            found = images.decode(file.read(), "an image", options, header)
            upright = images.turned_upright(found).convert("L")
            small = upright.resize((SIDE, SIDE), Image.Resampling.BOX)
        return np.asarray(small).reshape(-1)
    except Exception as error:  # Whatever a damaged file makes Pillow's many readers raise.
        let_through(error)
        return None


def stacked(copies: Sequence[np.ndarray | None]) -> np.ndarray:
    """The copies of images, uint8 [n, SIDE * SIDE]; black for one that cannot be read."""
    black = np.zeros(SIDE * SIDE, np.uint8)
    return np.array([black if copy is None else copy for copy in copies]).reshape(-1, SIDE * SIDE)
