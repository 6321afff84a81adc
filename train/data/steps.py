"""The steps from an image file to the pixels of a network, as numbers, and what executes them.

Training, evaluation, prediction and packages all run this code. The script beside an exported
program has a copy of this file.

A program in another language can make the same pixels. `w` and `h` are the width and height before
a step, `W` and `H` the two numbers of its `size`. Numbers are float64 unless said otherwise.

- `decode`: red, green and blue of eight bits, the high eight of 16, of the first frame. Colour
  profiles are ignored, and a transparent pixel keeps its colour. A truncated file is an error.
- `orient`: the image is rotated or mirrored as EXIF says. `decode` has rotated TIFF files already.
- `grey`: red, green and blue times `weights`, plus 2^(`bits` - 1), shifted right by `bits` bits.
- `crop`: the middle `W` x `H` pixels. The left edge is (w - W) / 2, the upper one (h - H) / 2. A
  half is rounded down, or with `"halves": "even"` to the even number.
- `resize`: a part of the image gets another size, unless it already has it. `to` says which:
  - `cover`: all of it. With s = max(H / h, W / w), the size is max(W, round(w s)) x
    max(H, round(h s)); `round` takes halves to the even number.
  - `shorter_side`: all of it. The shorter side gets `side`, the longer one `side` * longer /
    shorter, rounded down.
  - `middle_part`: all of it if it has `size`. Else, with s = `margin` * max(W / w, H / h), its
    middle of W / s x H / s, which gets `size`.

`resize` is Pillow's `BILINEAR`: one axis, rounded to eight bits, then the other. The height is
first if `vertical_first_ratio` is a number, h > H and h - H > `vertical_first_ratio` * (w - W). An
axis that is complete and has its length is left out. From `first` to `last`, both and their
difference rounded to float32, an axis gets `size` pixels:

1. scale = (last - first) / size; reach = max(scale, 1); the centre of pixel i is c = first +
   (i + 0.5) scale.
2. It is made of the pixels j from max(floor(c - reach + 0.5), 0) to below
   min(floor(c + reach + 0.5), length).
3. The weight of j is max(0, 1 - |(j - c + 0.5) (1 / reach)|), over the sum of the weights, times
   2^`weight_bits`, plus 0.5, rounded down.
4. The value is the sum of pixels times weights, plus 2^(`weight_bits` - 1), shifted right by
   `weight_bits` bits, and limited to 0 to 255. This is exact in 32 bits.
"""

import io
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np
from PIL import ExifTags, Image, ImageFile, ImageOps, TiffImagePlugin, UnidentifiedImageError

try:
    import pillow_heif

    # Nothing else in such a file is used, and so it cannot be damaged.
    pillow_heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False)
except ImportError:
    pass
Image.init()
# The formats that are read. An EPS file is a program, which Pillow has Ghostscript run.
FORMATS = tuple(name for name in Image.ID if name != "EPS")
# Tags of TIFF files: a bit of the first marks a preview, 0 in the second a white of zero.
_SUBFILE_TYPE, _PHOTOMETRIC = 254, 262
# An image of 16 bits whose values use fewer than 12 is nearly black in its high eight.
_LEAST_BRIGHT = 2**12
_DARK = (
    f"no value is above {_LEAST_BRIGHT - 1:,}, and white is {2**16 - 1:,}: it would be nearly "
    "black; scale its values, or save it with 8 bits"
)

FILTER = Image.Resampling.BILINEAR
# A step as in JSON: its name as "step", and its numbers.
Step = Mapping[str, Any]
# Width and height.
Size = tuple[int, int]
# The left, upper, right and lower edge.
Box = tuple[float, float, float, float]


def prepare(image: bytes | Image.Image, steps: Iterable[Step]) -> np.ndarray:
    """The pixels after all steps, uint8 [height, width, channels].

    Args:
        image: the bytes of a file, or an image that `opened` or other steps gave.
        steps: the steps, in their order.

    Raises:
        Exception: for a damaged file, Pillow's many readers can raise anything.
    """
    pixels = np.asarray(run(image, steps))
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def run(image: bytes | Image.Image, steps: Iterable[Step]) -> Image.Image:
    """The image after some steps; see `prepare`."""
    made = opened(io.BytesIO(image)) if isinstance(image, bytes) else image
    for step in steps:
        made = _STEPS[step["step"]](made, step)
    return made


def opened(file: BinaryIO, formats: tuple[str, ...] = FORMATS) -> ImageFile.ImageFile:
    """An image whose header is read, and whose pixels are not.

    Args:
        file: the file, at its start.
        formats: the formats that it may have, some of `FORMATS`.

    Raises:
        UnidentifiedImageError: it is not an image of these formats. Of damaged ones, anything.
        ImportError: it may be one of a phone, whose package is not installed.
    """
    head = file.read(12)
    file.seek(0)
    try:
        image = Image.open(file, formats=formats)
    except UnidentifiedImageError as error:
        if head[4:8] == b"ftyp" and "HEIF" not in FORMATS:
            raise ImportError("a photograph of a phone: pip install pillow-heif") from error
        raise
    if isinstance(image, TiffImagePlugin.TiffImageFile) and (
        image.tag_v2.get(_SUBFILE_TYPE, 0) & 1 or head[8:10] == b"CR"
    ):
        raise ValueError(
            "it has a preview in place of the picture, as the raw photographs of cameras have; "
            "convert it to JPEG or PNG"
        )
    return image


def _decode(image: Image.Image) -> Image.Image:
    """The image in RGB, without its transparency; of values of 16 bits the high eight."""
    has_deep_colours = any(";16" in str(tile.args) for tile in getattr(image, "tile", ()))
    # Pillow rotates a TIFF file while it decodes it.
    has_xmp = _forget_xmp(image)
    # Decodes all of it now. Otherwise a truncated file is only noticed later.
    image.load()
    has_xmp |= _forget_xmp(image)
    if image.mode[0] in "IF":
        image = _high_bits(image)
    elif has_deep_colours and np.asarray(image)[..., :3].max() < _LEAST_BRIGHT >> 8:
        raise ValueError(_DARK)
    elif image.mode == "P" and "transparency" in image.info:
        # Pillow would convert it to RGB with the same pixels, and a warning.
        image = image.convert("RGBA")
    # A JPEG file keeps an orientation that it has found in XMP. A copy does not.
    return image if image.mode == "RGB" and not has_xmp else image.convert("RGB")


def _forget_xmp(image: Image.Image) -> bool:
    """Has Pillow look for the orientation only in EXIF, as browsers do; whether XMP was there."""
    found = [image.info.pop(name, None) for name in ("xmp", "XML:com.adobe.xmp")]
    return any(one is not None for one in found)


def _high_bits(grey: Image.Image) -> Image.Image:
    """The high eight bits of grey values of 16 bits."""
    if grey.mode == "F" or (
        isinstance(grey, TiffImagePlugin.TiffImageFile)
        and (grey.mode == "I" or grey.tag_v2.get(_PHOTOMETRIC) == 0)
    ):
        raise ValueError(
            "its pixels are numbers for which white is not known, as floating-point numbers are; "
            "save it with 8 or 16 bits"
        )
    values = np.asarray(grey)
    if 0 < values.max() < _LEAST_BRIGHT:
        raise ValueError(_DARK)
    found = Image.fromarray((values >> 8).astype(np.uint8))
    found.info = grey.info  # Its orientation.
    return found


def _orient(image: Image.Image) -> Image.Image:
    """The image rotated or mirrored as its EXIF orientation says."""
    try:
        is_upright = image.getexif().get(ExifTags.Base.Orientation, 1) == 1
        # Pillow would copy an image that is upright.
        return image if is_upright else ImageOps.exif_transpose(image)
    except Exception:  # Pillow can raise anything for damaged EXIF; the pixels are fine.
        return image


def resized(step: Step, of: Size, position: tuple[float, float] = (0.5, 0.5)) -> tuple[Box, Size]:
    """The part of an image that the step "resize" resizes, and the width and height it then has.

    Args:
        step: the step.
        of: the width and height of the image.
        position: for "middle_part", how far right and how far down the part is instead of the
            middle, each in [0, 1].
    """
    whole = (0.0, 0.0, *of)
    if step["to"] == "shorter_side":
        side = step["side"]
        longer = int(side * max(of) / min(of))
        return whole, (side, longer) if of[0] <= of[1] else (longer, side)
    width, height = size = tuple(step["size"])
    scale = step.get("margin", 1.0) * max(width / of[0], height / of[1])
    if step["to"] == "cover":
        return whole, (max(width, round(of[0] * scale)), max(height, round(of[1] * scale)))
    if size == of:
        return whole, size
    across, down = width / scale, height / scale
    left, top = position[0] * (of[0] - across), position[1] * (of[1] - down)
    return (left, top, left + across, top + down), size


def enlarged(step: Step, of: Size) -> int:
    """The pixels of a complete image that is resized so that its shorter side is that of a step."""
    shorter = step.get("side") or min(step["size"])
    return int(max(of) * shorter**2 // max(1, min(of)))


def check_resizable(image: Image.Image, step: Step) -> None:
    """Raises `ValueError` for an image so long and narrow that it would be huge when resized."""
    # Above twice its limit Pillow takes an image for an attack on the memory.
    if (pixels := enlarged(step, image.size)) > 2 * (Image.MAX_IMAGE_PIXELS or 2**30):
        raise ValueError(
            f"it is too long and narrow, {image.width} x {image.height} pixels: resized it would "
            f"have {pixels:,}"
        )


def _resize(image: Image.Image, step: Step) -> Image.Image:
    check_resizable(image, step)
    box, size = resized(step, image.size)
    return image.resize(size, FILTER, box=box)


def _crop(image: Image.Image, step: Step) -> Image.Image:
    width, height = step["size"]
    room = image.width - width, image.height - height
    # Halves go down, or to the even number, as in torchvision.
    left, top = (one // 2 if step["halves"] == "down" else round(one / 2) for one in room)
    return image.crop((left, top, left + width, top + height))


_STEPS = {
    "decode": lambda image, _: _decode(image),
    "orient": lambda image, _: _orient(image),
    "grey": lambda image, _: image.convert("L"),
    "resize": _resize,
    "crop": _crop,
}
