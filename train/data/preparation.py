"""How an image file becomes pixels, as the list of steps in the description of a program.

`train.data.steps` describes the steps and executes them. The numbers of
Pillow's filter are in the list, so that other programs can make the same pixels. Pillow resizes
rows and columns one after the other and rounds to eight bits after each. So their order matters for
the last bit of a pixel, and Pillow 13 has another order than earlier versions.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from train.data.crops import ImageReader
from train.data.steps import FILTER, Step, prepare


def to_plain(reader: ImageReader) -> list[dict[str, Any]]:
    """The steps of a reader, in their order, with the numbers of the installed Pillow."""
    resampling = {
        "filter": "bilinear",
        "antialias": True,
        # The weights of the filter are rounded to this many bits after the point.
        "weight_bits": 22,
        "vertical_first_ratio": vertical_first_ratio(),
    }
    numbers = {"resize": {"resampling": resampling}}
    return [{**step, **numbers.get(step["step"], {})} for step in reader.steps]


def in_words(reader: ImageReader) -> str:
    """The steps of a reader in a sentence, for people who prepare images themselves."""
    steps = ", ".join(map(_in_words, reader.steps))
    return (
        f"Each picture is {steps}; the values are from 0 to 255. Sizes are height x width, and "
        "resizing is bilinear with antialiasing, as in Pillow."
    )


def _in_words(step: Step) -> str:
    width, height = step.get("size", (0, 0))
    size = f"{height} x {width}"
    match step["step"], step.get("to"):
        case "resize", "shorter_side":
            return f"resized to a shorter side of {step['side']} pixels"
        case "resize", "cover":
            return f"resized to just cover {size} pixels"
        case "resize", _:
            larger = f"{step['margin']:.4g} times {size}"
            return f"resized to just cover {larger} and cut to its middle, unless it is {size}"
        case "crop", _:
            return f"cut to the middle {size} pixels"
    return {"decode": "decoded to RGB", "orient": "turned upright", "grey": "made grey"}[
        step["step"]
    ]


def from_plain(steps: Sequence[Step], shape: tuple[int, ...]) -> ImageReader:
    """The reader of steps that give pixels of the shape; damaged ones raise anything."""
    if (found := prepare(Image.new("RGB", (3, 2)), steps).shape) != shape:
        raise ValueError(f"its steps give pixels of shape {found} instead of {shape}")
    height, width, channels = shape
    return ImageReader((height, width, channels), tuple(steps))


@functools.cache
def vertical_first_ratio() -> int | None:
    """The ratio that decides which images the installed version resizes vertically first; or None.

    From a size (w, h) to (W, H), the columns come before the rows if h > H and h - H exceeds this
    number, 2 in Pillow 13, times w - W. None if the rows always come first.
    """
    pixels = (np.arange(24, dtype=np.uint8).reshape(8, 3) ** 2).repeat(3).reshape(8, 3, 3)
    image, (width, height) = Image.fromarray(pixels), (5, 3)
    found = np.asarray(image.resize((width, height), FILTER))
    by_rows = image.resize((width, image.height), FILTER)
    rows_first = np.asarray(by_rows.resize((width, height), FILTER))
    return None if np.array_equal(found, rows_first) else 2
