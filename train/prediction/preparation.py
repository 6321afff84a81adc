"""How an image file becomes pixels, as the list of steps in the description of a program.

docs/preparation.md describes each step, and `train.data.steps` executes them.
"""

from collections.abc import Sequence
from typing import Any

from PIL import Image

from train.data.crops import ImageReader
from train.data.steps import Step, prepare
from train.foundation import fields, shapes
from train.foundation.errors import UserError
from train.foundation.fields import Field
from train.prediction import resampling

# The shape of the list of steps in a description.
SHAPE: Field = shapes.list_of(shapes.record({"step": fields.text()}), at_least=1)


def to_plain(reader: ImageReader) -> list[dict[str, Any]]:
    """The steps of a reader, in their order, with the numbers of the installed Pillow."""
    numbers = {"resize": {"resampling": resampling.to_plain()}}
    return [{**step, **numbers.get(step["step"], {})} for step in reader.steps]


def from_plain(steps: Sequence[Step], shape: tuple[int, int, int]) -> ImageReader:
    """The reader of steps that have `SHAPE`, for pixels of that shape.

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
