"""Small pictures for a page."""

import io
from base64 import b64encode
from dataclasses import dataclass

from PIL import Image

# Twice what the page gives them, for screens of high resolution.
_LONGEST_SIDE = 384
# Below, every pixel is to be seen: what JPEG does to such pictures is seen too.
_SMALL = 96


@dataclass(frozen=True)
class Thumbnail:
    """A small picture.

    Attributes:
        encoded: PNG or JPEG.
        width: in pixels.
        height: in pixels.
        is_small: whether the picture itself has so few pixels that each is to be seen.
    """

    encoded: bytes
    width: int
    height: int
    is_small: bool

    @classmethod
    def of(cls, image: Image.Image) -> "Thumbnail":
        """The thumbnail of a picture in RGB, which it leaves as it is."""
        small = max(image.size) <= _SMALL
        scale = min(1.0, _LONGEST_SIDE / max(image.size))
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        if size != image.size:
            image = image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
        # A new picture, without what else was in the file, such as a comment.
        bare = Image.frombytes("RGB", image.size, image.tobytes())
        encoded = io.BytesIO()
        if small:
            bare.save(encoded, "PNG", optimize=True)
        else:
            bare.save(encoded, "JPEG", quality=75, optimize=True)
        return cls(encoded.getvalue(), *size, small)

    def data_uri(self) -> str:
        """The picture as an address that holds all of it."""
        kind = "png" if self.is_small else "jpeg"
        return f"data:image/{kind};base64,{b64encode(self.encoded).decode()}"
