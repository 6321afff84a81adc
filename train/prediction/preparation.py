"""How an image file becomes pixels, as a list of steps in JSON that any program can execute.

docs/preparation.md describes each step. `standalone.py` executes the steps with Pillow only.
"""

from collections.abc import Mapping
from typing import Any

from train.data import resampling
from train.data.crops import Fit, ImageReader
from train.foundation import fields, shapes
from train.foundation.errors import UserError
from train.foundation.fields import Field

# How Pillow makes a grey value: the weighted sum of red, green and blue, plus a half, without its
# last 16 bits.
_GREY = {"step": "grey", "weights": [19595, 38470, 7471], "bits": 16}
_NUMBERS = shapes.list_of(fields.integer(1))


def _width_and_height(value: Any) -> str | None:
    wrong = _NUMBERS(value)
    return wrong or (None if len(value) == 2 else "a list of a width and a height")


_RESIZINGS: Mapping[str, Field] = {
    "cover": shapes.record({"size": _width_and_height}),
    "shorter_side": shapes.record({"side": fields.integer(1)}),
    "middle_part": shapes.record({"size": _width_and_height, "margin": fields.Number(at_least=1)}),
}


def _resize(value: Any) -> str | None:
    wrong = shapes.record({"to": fields.one_of(_RESIZINGS)})(value)
    return wrong or _RESIZINGS[value["to"]](value)


_STEPS: Mapping[str, Field] = {
    "decode": shapes.record({}),
    "orient": shapes.record({}),
    "grey": shapes.record({}),
    "resize": _resize,
    "crop": shapes.record({"size": _width_and_height, "halves": fields.one_of(("down", "even"))}),
}


def _step(value: Any) -> str | None:
    wrong = shapes.record({"step": fields.one_of(_STEPS)})(value)
    return wrong or _STEPS[value["step"]](value)


# The shape of the list of steps in a description.
SHAPE: Field = shapes.list_of(_step, at_least=1)


def to_plain(reader: ImageReader) -> list[dict[str, Any]]:
    """The steps of a reader, in their order."""
    fit, size = reader.fit, list(reader.fit.size)
    of_form: Mapping[str, Mapping[str, Any]] = {
        "cover": {"size": size},
        "shorter_side": {"side": fit.side},
        "middle_part": {"size": size, "margin": fit.margin},
    }
    halves = {"cover": "down", "shorter_side": "even"}.get(fit.to)
    is_grey = reader.shape[-1] == 1
    return [
        {"step": "decode", "mode": "RGB"},
        *([{"step": "orient"}] if reader.upright else []),
        *([_GREY] if reader.grey_first else []),
        {"step": "resize", "to": fit.to, **of_form[fit.to], "resampling": resampling.to_plain()},
        *([] if halves is None else [{"step": "crop", "size": size, "halves": halves}]),
        *([_GREY] if is_grey and not reader.grey_first else []),
    ]


def from_plain(steps: list[dict[str, Any]], shape: tuple[int, int, int]) -> ImageReader:
    """The reader of steps that have `SHAPE`, for pixels of that shape.

    Raises:
        UserError: the steps are not such as `to_plain` makes for these pixels.
    """
    by_name = {step["step"]: step for step in steps}
    resize = by_name.get("resize", {"to": "cover"})
    fit = Fit((shape[1], shape[0]), resize["to"], resize.get("side", 0), resize.get("margin", 1.0))
    for grey_first in (False, True):
        reader = ImageReader(shape, fit, upright="orient" in by_name, grey_first=grey_first)
        if _numbers(to_plain(reader)) == _numbers(steps):
            return reader
    names = ", ".join(step["step"] for step in steps)
    raise UserError(f"its steps ({names}) do not give {shape[0]} x {shape[1]} pixels in that order")


def _numbers(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps without the resampling of the version of Pillow that wrote them."""
    return [{name: step[name] for name in step if name != "resampling"} for step in steps]
