"""How an image file becomes pixels, as the list of steps in the description of a program.

docs/preparation.md describes each step, and `train.data.steps` executes them. The numbers of
Pillow's filter are in the list, so that other programs can make the same pixels. Pillow resizes the
rows and the columns of an image one after the other and rounds to eight bits after each. So the
order matters for the last bit of a pixel, and Pillow 13 has another order than earlier versions.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from train.data.crops import ImageReader
from train.data.steps import FILTER, Step, prepare
from train.foundation.errors import UserError

# The weights of a filter are rounded to this many bits after the point.
_WEIGHT_BITS = 22
# The ratio of Pillow 13; see `vertical_first_ratio`.
_RATIO = 2


def to_plain(reader: ImageReader) -> list[dict[str, Any]]:
    """The steps of a reader, in their order, with the numbers of the installed Pillow."""
    resampling = {
        "filter": "bilinear",
        "antialias": True,
        "weight_bits": _WEIGHT_BITS,
        "vertical_first_ratio": vertical_first_ratio(),
    }
    numbers = {"resize": {"resampling": resampling}}
    return [{**step, **numbers.get(step["step"], {})} for step in reader.steps]


def from_plain(steps: Sequence[Step], shape: tuple[int, int, int]) -> ImageReader:
    """The reader of steps, for pixels of that shape.

    Raises:
        UserError: the steps cannot be executed, or give other pixels.
    """
    names = ", ".join(step["step"] for step in steps)
    wrong = f"its steps ({names}) do not give {shape[0]} x {shape[1]} pixels in that order"
    reader = ImageReader(shape, tuple(steps))
    try:
        found = prepare(Image.new("RGB", (3, 2)), steps).shape, reader.fit.size
    except Exception as error:  # A number that is missing or wrong makes Pillow raise anything.
        raise UserError(wrong) from error
    if found != (shape, (shape[1], shape[0])):
        raise UserError(wrong)
    return reader


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
