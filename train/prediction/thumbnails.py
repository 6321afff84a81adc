"""Small pictures for pages: of a photograph, and of examples in memory or still encoded."""

import io
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from train.data.examples import Examples
from train.data.images import UnreadableImageError

# Twice their size on a page, for screens of high resolution.
LONGEST_SIDE = 384
# Up to this size a page enlarges the pixels, which would make JPEG artefacts visible.
_SMALL = 96


@dataclass(frozen=True)
class Thumbnail:
    """A PNG or JPEG file; `is_small` if the image itself is so small that its pixels are seen."""

    encoded: bytes
    width: int
    height: int
    is_small: bool

    @classmethod
    def of(cls, image: Image.Image, longest_side: int = LONGEST_SIDE) -> "Thumbnail":
        """The thumbnail of an RGB image, which is not changed."""
        small = max(image.size) <= _SMALL
        scale = min(1.0, longest_side / max(image.size))
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        if size != image.size:
            image = image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
        # A new image, without metadata of the file such as comments.
        bare, encoded = Image.frombytes("RGB", image.size, image.tobytes()), io.BytesIO()
        kind = {"format": "PNG"} if small else {"format": "JPEG", "quality": 75}
        bare.save(encoded, optimize=True, **kind)
        return cls(encoded.getvalue(), *size, small)

    def data_uri(self) -> str:
        """The thumbnail as the address of a picture."""
        kind = "png" if self.is_small else "jpeg"
        return f"data:image/{kind};base64,{b64encode(self.encoded).decode()}"


@dataclass(frozen=True)
class Similar:
    """A training example whose features have an angle of some cosine to those of an example.

    `thumbnail` is None for rows of features and files that are gone; `credit` is empty if neither
    the author nor the licence is known.
    """

    name: str
    cosine: float
    thumbnail: Thumbnail | None
    credit: str = ""


def of_examples(
    examples: Examples, longest_side: int = LONGEST_SIDE
) -> Callable[[int], Thumbnail | None] | None:
    """Makes the thumbnail of the example at a place; None for rows of features."""

    def make(place: int) -> Thumbnail | None:
        if examples.reader is None:
            pixels = examples.rows(np.array([place]))[0]
            is_grey = pixels.shape[-1] == 1
            image = Image.fromarray(pixels[..., 0] if is_grey else pixels).convert("RGB")
        else:
            try:
                image = examples.reader.decode(examples.encoded(place), examples.name(place))
            except (OSError, UnreadableImageError):
                # It was removed or damaged since it was read before.
                return None
        return Thumbnail.of(image, longest_side)

    return None if examples.are_rows else make
