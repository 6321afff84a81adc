"""Decodes images with Pillow, and turns them upright.

The result is RGB. Pillow converts greyscale, palette and CMYK images. `pixel_depth` converts images
of more than eight bits per channel. Transparency is dropped, or put on white.
"""

import io
import re
from dataclasses import dataclass

from PIL import ExifTags, Image, ImageFile, ImageOps, UnidentifiedImageError

from train.data import image_opening, pixel_depth
from train.foundation.errors import UserError, first_line

# The start of a file that `uncompressed` has written, with the width and height.
_PPM = re.compile(rb"P6 (\d{1,3}) (\d{1,3}) 255\n")


class UnreadableImageError(UserError):
    """A file that is not an image, or not all of one."""


class TruncatedImageError(UnreadableImageError):
    """A file that lacks its end; `DecodeOptions.read_truncated` may read the rest of it."""


@dataclass(frozen=True)
class DecodeOptions:
    """What `decode` makes of images that are not opaque, or not complete.

    Attributes:
        on_white: whether transparent pixels are mixed with white; otherwise they have their colour.
        read_truncated: whether a file that lacks its end is read as far as it goes; otherwise it is
            unreadable.
    """

    on_white: bool = False
    read_truncated: bool = False


USUAL = DecodeOptions()


def decode(
    encoded: bytes,
    name: str,
    options: DecodeOptions = USUAL,
    header: ImageFile.ImageFile | None = None,
) -> Image.Image:
    """The image in RGB.

    Args:
        encoded: a file's bytes, in any format that Pillow reads, or HEIC.
        name: its name in messages.
        options: what is made of images that are not opaque, or not complete.
        header: see `image_opening.loaded`.

    Raises:
        UnreadableImageError: it is not an image, or not all of one.
    """
    image = _of_uncompressed(encoded)
    if image is not None:
        return image
    try:
        image = image_opening.loaded(encoded, read_truncated=options.read_truncated, header=header)
        return _to_rgb(pixel_depth.in_eight_bits(image, encoded), on_white=options.on_white)
    except UnidentifiedImageError as error:
        raise UnreadableImageError(f"{name} is not an image") from error
    except Exception as error:  # Whatever a damaged file makes Pillow's many readers raise.
        is_truncated = image_opening.says_truncated(error)
        kind = TruncatedImageError if is_truncated else UnreadableImageError
        raise kind(f"cannot decode {name}: {first_line(error)}") from error


def uncompressed(image: Image.Image) -> bytes:
    """A small image in RGB as a PPM file, which `decode` reads in a fifth of Pillow's time."""
    return b"P6 %d %d 255\n" % image.size + image.tobytes()


def orientation(encoded: bytes) -> int:
    """The EXIF orientation of a JPEG file by its first bytes; 1 if it is not known."""
    try:
        with image_opening.opened(io.BytesIO(encoded)) as header:
            # `header.getexif` would look into XMP, too.
            exif = Image.Exif()
            exif.load(header.info.get("exif", b""))
            return int(exif.get(ExifTags.Base.Orientation, 1))
    except Exception:  # For the same reason as in `turned_upright`.
        return 1


def turned_upright(image: Image.Image) -> Image.Image:
    """The image, rotated as its EXIF orientation says.

    If EXIF has none, Pillow takes one from XMP. Browsers do not, so that the user sees the image as
    it is stored, and a web page of `train.export` gets it so.
    """
    if type(image) is Image.Image and not image.info:
        # Pillow would look for an orientation, and take longer than a small image takes to decode.
        return image
    try:
        return ImageOps.exif_transpose(_without_xmp(image))
    except Exception:  # Pillow can raise anything for damaged EXIF; the pixels are fine.
        return image


def check_resizable(size: tuple[int, int], shorter_side: int, name: str) -> None:
    """Refuses an image that is so long and narrow that it would be huge when resized.

    Args:
        size: its width and height.
        shorter_side: the shorter one of these after it is resized.
        name: its name in messages.

    Raises:
        UnreadableImageError: with that shorter side, Pillow would refuse to decode it.
    """
    enlarged = max(size) * shorter_side**2 // min(size)
    # Above twice its limit Pillow takes an image for an attack on the memory.
    if enlarged > 2 * (Image.MAX_IMAGE_PIXELS or 2**30):
        raise UnreadableImageError(
            f"{name} is too long and narrow, {size[0]} x {size[1]} pixels: with its "
            f"shorter side at {shorter_side} it would have {enlarged:,}"
        )


def _without_xmp(image: Image.Image) -> Image.Image:
    if not any(name in image.info for name in image_opening.XMP):
        return image
    # A JPEG file keeps the orientation that it has found; a copy looks for it again.
    found = image.copy()
    for name in image_opening.XMP:
        found.info.pop(name, None)
    return found


def _of_uncompressed(encoded: bytes) -> Image.Image | None:
    """The image that `uncompressed` has written; None for other files."""
    header = _PPM.match(encoded)
    if header is None:
        return None
    width, height = map(int, header.groups())
    pixels = memoryview(encoded)[header.end() :]
    if width * height == 0 or len(pixels) != width * height * 3:
        return None
    # Pillow's own reader spends four fifths of the time of a small image on finding the format.
    return Image.frombytes("RGB", (width, height), pixels)


def _to_rgb(image: Image.Image, *, on_white: bool) -> Image.Image:
    if on_white and image.has_transparency_data:
        return _on_white(image)
    if image.mode == "RGB":
        return image
    if image.mode == "P" and "transparency" in image.info:
        # Straight to RGB, Pillow gives the same pixels and a warning.
        image = image.convert("RGBA")
    return image.convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    layer = image.convert("RGBA")
    flat = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    # The EXIF orientation is among it.
    flat.info = {name: value for name, value in layer.info.items() if name != "transparency"}
    return flat
