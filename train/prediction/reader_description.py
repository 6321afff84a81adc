"""How images become pixels, as a JSON value: so that an exported program can be evaluated."""

from typing import Any

from train.data.framing import Framing, PlainFraming, PublishedFraming
from train.data.image_reader import ImageReader
from train.data.images import DecodeOptions
from train.data.own.image_changes import OwnFraming
from train.data.pictures import GreyPicture, PillowPicture
from train.foundation import fields, shapes
from train.foundation.fields import Field

# By the value of "framing". `PublishedFraming` has the side after resizing, too.
_FRAMINGS: dict[str, type[Framing]] = {
    "plain": PlainFraming,
    "published": PublishedFraming,
    "own": OwnFraming,
}
SHAPE: Field = shapes.record(
    {
        "framing": fields.one_of(_FRAMINGS),
        "resized_side": fields.optional(fields.integer(1)),
        "upright": fields.boolean(),
        "on_white": fields.boolean(),
        "read_truncated": fields.boolean(),
    }
)


def to_plain(reader: ImageReader) -> dict[str, Any] | None:
    """The description of a reader, without the shape of its pixels.

    A data set of another package can have a framing of its own, which has no description: None.
    """
    framing = reader.framing
    name = next((name for name, kind in _FRAMINGS.items() if type(framing) is kind), None)
    if name is None:
        return None
    return {
        "framing": name,
        "resized_side": framing.resized_side if isinstance(framing, PublishedFraming) else None,
        "upright": reader.upright,
        "on_white": reader.options.on_white,
        "read_truncated": reader.options.read_truncated,
    }


def from_plain(plain: dict[str, Any], shape: tuple[int, int, int]) -> ImageReader:
    """The reader of a description, which decodes by Pillow, for pixels of that shape."""
    side, name = plain["resized_side"], plain["framing"]
    framing = PublishedFraming(shape, side) if name == "published" else _FRAMINGS[name](shape)
    options = DecodeOptions(plain["on_white"], plain["read_truncated"])
    kind = GreyPicture if name == "plain" and shape[-1] == 1 else PillowPicture
    return ImageReader(framing, plain["upright"], options, kind)
