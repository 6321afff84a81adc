"""How an image file becomes pixels, as a list of steps in JSON that any program can execute.

docs/preparation.md describes each step. `standalone.py` executes the steps with Pillow only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from train.data import resampling
from train.data.fitting import Cover, Fit, MiddleCrop, MiddlePart, Resizing, ShorterSide
from train.data.framing import Framing
from train.data.image_reader import ImageReader
from train.data.images import DecodeOptions
from train.data.pictures import GreyPicture, PillowPicture
from train.foundation import fields, shapes
from train.foundation.errors import UserError
from train.foundation.fields import Field

# How Pillow makes a grey value: the weighted sum of red, green and blue, plus a half, without its
# last 16 bits.
_GREY = {"step": "grey", "weights": [19595, 38470, 7471], "bits": 16}
_NAMES: Mapping[type[Resizing], str] = {
    Cover: "cover",
    ShorterSide: "shorter_side",
    MiddlePart: "middle_part",
}
_TRANSPARENCY = {False: "drop", True: "white"}
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
    "decode": shapes.record(
        {
            "transparency": fields.one_of(_TRANSPARENCY.values()),
            "read_truncated": fields.boolean(),
        }
    ),
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


def to_plain(reader: ImageReader) -> list[dict[str, Any]] | None:
    """The steps of a reader, in their order.

    A data set of another package can resize in a way of its own, which has no description: None.
    """
    fit = reader.framing.fit
    to = _NAMES.get(type(fit.resizing))
    if to is None:
        return None
    # The colours of a picture that is grey before it is resized are not resized.
    is_grey, is_grey_first = reader.shape[-1] == 1, issubclass(reader.kind, GreyPicture)
    return [
        {
            "step": "decode",
            "mode": "RGB",
            "transparency": _TRANSPARENCY[reader.options.on_white],
            "read_truncated": reader.options.read_truncated,
        },
        *([{"step": "orient"}] if reader.upright else []),
        *([_GREY] if is_grey_first else []),
        {
            "step": "resize",
            "to": to,
            **_plain(fit.resizing),
            "resampling": resampling.to_plain(),
        },
        *([] if fit.crop is None else [{"step": "crop", **_plain(fit.crop)}]),
        *([_GREY] if is_grey and not is_grey_first else []),
    ]


def from_plain(steps: list[dict[str, Any]], shape: tuple[int, int, int]) -> ImageReader:
    """The reader of steps that have `SHAPE`, for pixels of that shape; it decodes with Pillow.

    Raises:
        UserError: the steps are in another order, or give pixels of another size.
    """
    names = [step["step"] for step in steps]
    resize = names.index("resize") if "resize" in names else len(names)
    grey_first = "grey" in names[:resize]
    reader = ImageReader(
        _DescribedFraming(shape, _fit(steps)),
        "orient" in names,
        _options(steps),
        GreyPicture if grey_first else PillowPicture,
    )
    if [step["step"] for step in to_plain(reader) or ()] != names:
        raise UserError(f"these steps cannot be executed in their order: {', '.join(names)}")
    last = steps[names.index("crop")] if "crop" in names else steps[resize]
    if tuple(last["size"]) != reader.framing.size:
        width, height = last["size"]
        raise UserError(f"the steps give {height} x {width} pixels, not {shape[0]} x {shape[1]}")
    return reader


@dataclass(frozen=True)
class _DescribedFraming(Framing):
    """The framing of a description, for evaluation."""

    described: Fit

    @property
    @override
    def shorter_side(self) -> int:
        resizing = self.described.resizing
        return resizing.side if isinstance(resizing, ShorterSide) else min(self.size)

    @property
    @override
    def in_words(self) -> str:
        return f"resized by {self.described}"

    @property
    @override
    def fit(self) -> Fit:
        return self.described


def _plain(numbers: Resizing | MiddleCrop) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(numbers).items()
    }


def _options(steps: list[dict[str, Any]]) -> DecodeOptions:
    found = next((step for step in steps if step["step"] == "decode"), None)
    if found is None:
        raise UserError("the steps have no step decode")
    return DecodeOptions(found["transparency"] == "white", found["read_truncated"])


def _fit(steps: list[dict[str, Any]]) -> Fit:
    by_name = {step["step"]: step for step in steps}
    if "resize" not in by_name:
        raise UserError("the steps have no step resize")
    resize, crop = by_name["resize"], by_name.get("crop")
    resizing: Resizing
    if resize["to"] == "shorter_side":
        resizing = ShorterSide(resize["side"])
    elif resize["to"] == "cover":
        resizing = Cover(_size(resize))
    else:
        resizing = MiddlePart(_size(resize), float(resize["margin"]))
    return Fit(resizing, None if crop is None else MiddleCrop(_size(crop), crop["halves"]))


def _size(step: dict[str, Any]) -> tuple[int, int]:
    width, height = step["size"]
    return width, height
