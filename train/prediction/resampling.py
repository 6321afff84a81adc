"""How Pillow resizes, as numbers, so that other programs can make the same pixels.

Pillow resizes the rows and the columns of an image one after the other and rounds to eight bits
after each. So the order matters for the last bit of a pixel, and Pillow 13 has another order than
earlier versions.
"""

import functools
from typing import Any

import numpy as np
from PIL import Image

from train.data.steps import FILTER

# The weights of a filter are rounded to this many bits after the point.
_WEIGHT_BITS = 22
# The ratio of Pillow 13; see `vertical_first_ratio`.
_RATIO = 2


def to_plain() -> dict[str, Any]:
    """The numbers of the installed version; docs/preparation.md has the formulas."""
    return {
        "filter": "bilinear",
        "antialias": True,
        "weight_bits": _WEIGHT_BITS,
        "vertical_first_ratio": vertical_first_ratio(),
    }


@functools.cache
def vertical_first_ratio() -> int | None:
    """The ratio that decides which images the installed version resizes vertically first; or None.

    From a size (w, h) to (W, H), the columns come before the rows if h > H and h - H exceeds this
    number times w - W. None if the rows always come first.
    """
    pixels = (np.arange(24, dtype=np.uint8).reshape(8, 3) ** 2).repeat(3).reshape(8, 3, 3)
    image, (width, height) = Image.fromarray(pixels), (5, 3)
    found = np.asarray(image.resize((width, height), FILTER))
    by_rows = image.resize((width, image.height), FILTER)
    rows_first = np.asarray(by_rows.resize((width, height), FILTER))
    return None if np.array_equal(found, rows_first) else _RATIO
