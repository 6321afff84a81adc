"""Photographs of an example, and their thumbnails for the HTML page."""

import io
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

# Twice their size on the page, for screens of high resolution.
LONGEST_SIDE = 384
# Up to this size the page enlarges the pixels, which would make JPEG artefacts visible.
_SMALL = 96


@dataclass(frozen=True)
class Thumbnail:
    """A thumbnail.

    Attributes:
        encoded: the PNG or JPEG file.
        width: in pixels.
        height: in pixels.
        is_small: whether the image itself is so small that its pixels are shown enlarged.
    """

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
        bare = Image.frombytes("RGB", image.size, image.tobytes())
        encoded = io.BytesIO()
        if small:
            bare.save(encoded, "PNG", optimize=True)
        else:
            bare.save(encoded, "JPEG", quality=75, optimize=True)
        return cls(encoded.getvalue(), *size, small)

    def data_uri(self) -> str:
        """The thumbnail as a data URI."""
        kind = "png" if self.is_small else "jpeg"
        return f"data:image/{kind};base64,{b64encode(self.encoded).decode()}"


@dataclass(frozen=True)
class Photograph:
    """A photograph that a set is made from.

    Attributes:
        path: the path of its file.
        thumbnail: a thumbnail, if requested.
    """

    path: Path
    thumbnail: Thumbnail | None
