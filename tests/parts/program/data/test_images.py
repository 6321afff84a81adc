"""Files of many kinds become the right pixels, or are refused in one line."""

import io
import struct

import numpy as np
import pillow_heif
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.parts.program.data.encoded_images import encode, photograph, png, smooth, tiff
from train.data import images
from train.data.images import UnreadableImageError

PICTURE = smooth(0)
COLOURS = np.asarray(PICTURE)
GREY = np.asarray(PICTURE.convert("L"))
RAMP = np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)
# Twelve bits, stored in sixteen as they are.
DARK = (RAMP >> 4).astype(np.uint16)
XMP = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'


def deep_colours(values):
    """A PNG file of 16 bits for each colour, which Pillow does not write."""
    rows = [np.stack([row] * 3, -1).astype(">u2").tobytes() for row in values]
    return png(size=values.shape[::-1], bits=16, colour=2, rows=rows)


def turning(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def with_xmp(kind):
    """The options that save an orientation in XMP, and EXIF data without one."""
    exif = Image.Exif()
    exif[0x010F] = "camera"
    if kind == "TIFF":
        return {"tiffinfo": {700: XMP}}
    if kind == "PNG":
        text = PngInfo()
        # Behind the pixels.
        text.add(b"iTXt", b"XML:com.adobe.xmp" + bytes(5) + XMP, after_idat=True)
        return {"pnginfo": text, "exif": exif}
    return {"xmp": XMP, "exif": exif}


def grey(values):
    return np.stack([values] * 3, axis=-1)


# A picture of four colours in a palette, and the colours of its pixels.
_COLOURS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 8, 7]], np.uint8)
_PLACES = (np.arange(64, dtype=np.uint8) % 4).reshape(8, 8)
PALETTE = Image.fromarray(_PLACES).convert("P")
PALETTE.putpalette(_COLOURS.tobytes())
OF_PALETTE = _COLOURS[_PLACES]
TRANSPARENT = PICTURE.convert("RGBA")
TRANSPARENT.putalpha(Image.linear_gradient("L").resize(PICTURE.size))
BLACK_WHITE = PICTURE.convert("1")
DEEP, LEFT = Image.fromarray(RAMP), grey(RAMP >> 8)
# The files without losses, and their pixels.
READ = {
    **{kind: (encode(PICTURE, kind), COLOURS) for kind in ("PNG", "TIFF", "BMP", "PPM", "TGA")},
    "WebP": (encode(PICTURE, "WEBP", lossless=True), COLOURS),
    "JPEG 2000": (encode(PICTURE, "JPEG2000", irreversible=False), COLOURS),
    "compressed TIFF": (encode(PICTURE, "TIFF", compression="tiff_lzw"), COLOURS),
    "grey": (encode(PICTURE.convert("L"), "PNG"), grey(GREY)),
    "grey BMP": (encode(PICTURE.convert("L"), "BMP"), grey(GREY)),
    "black and white": (encode(BLACK_WHITE, "PNG"), np.asarray(BLACK_WHITE.convert("RGB"))),
    "palette": (encode(PALETTE, "GIF"), OF_PALETTE),
    "transparent palette": (encode(PALETTE, "PNG", transparency=b"\0dd\xff"), OF_PALETTE),
    "transparent": (encode(TRANSPARENT, "PNG"), COLOURS),
    "transparent grey": (encode(TRANSPARENT.convert("LA"), "PNG"), grey(GREY)),
    "a transparent colour": (encode(PICTURE, "PNG", transparency=(1, 2, 3)), COLOURS),
    "16 bits": (encode(DEEP, "PNG"), LEFT),
    "16 bits, TIFF": (encode(DEEP, "TIFF"), LEFT),
    "16 bits, PGM": (b"P5 64 64 65535\n" + RAMP.astype(">u2").tobytes(), LEFT),
    "16 bits, transparent": (encode(DEEP, "PNG", transparency=60_000), LEFT),
    "16 bits, turned": (
        encode(Image.fromarray(RAMP[:32]), "PNG", exif=turning(6)),
        grey(np.rot90(RAMP[:32] >> 8, -1)),
    ),
    "16 bits of colour": (deep_colours(RAMP), LEFT),
    "16 bits, black": (encode(Image.fromarray(RAMP * 0), "PNG"), LEFT * 0),
    "16 bits, dark": (encode(Image.fromarray(DARK + 1), "PNG"), grey((DARK + 1) >> 8)),
    "8 bits, dark": (encode(Image.fromarray(GREY // 20), "TIFF"), grey(GREY // 20)),
    "damaged EXIF": (encode(PICTURE, "PNG", exif=b"Exif\0\0no tags"), COLOURS),
}
# Of an animation the first picture.
for _kind, _options in {"GIF": {}, "PNG": {}, "WEBP": {"lossless": True}}.items():
    _more = {"save_all": True, "append_images": [Image.new("RGB", (8, 8))], **_options}
    READ[f"moving {_kind}"] = (encode(PALETTE.convert("RGB"), _kind, **_more), OF_PALETTE)
NEARLY_BLACK = "no value is above 4,095, and white is 65,535: it would be nearly black"
UNKNOWN_WHITE = "white is not known"
# The files, and what is told of them.
REFUSED = {
    "empty": (b"", "is not an image"),
    "text": (b"<html>404 not found</html>", "is not an image"),
    "program for printers": (encode(PICTURE, "EPS"), "is not an image"),
    "grey of 12 bits": (encode(Image.fromarray(DARK), "PNG"), NEARLY_BLACK),
    "grey of 12 bits, TIFF": (tiff(DARK, bits=16), NEARLY_BLACK),
    "colours of 12 bits": (deep_colours(DARK), NEARLY_BLACK),
    "floating-point": (encode(Image.fromarray(RAMP.astype(np.float32)), "TIFF"), UNKNOWN_WHITE),
    "32 bits": (tiff(RAMP.astype(np.uint32) << 16, bits=32), UNKNOWN_WHITE),
    "signed": (tiff((RAMP >> 1).astype(np.int16), bits=16, kind=2), UNKNOWN_WHITE),
    "white is zero": (tiff(RAMP, bits=16, photometric=0), UNKNOWN_WHITE),
    # The first picture of a DNG, NEF or ARW file is marked as a reduced one.
    "preview": (tiff(GREY, bits=8, tags={254: 1}), "raw photographs"),
    # A CR2 file says what it is.
    "Canon": (
        b"II*\0" + struct.pack("<I", 16) + b"CR".ljust(8, b"\0") + tiff(GREY, bits=8)[8:],
        "raw photographs",
    ),
    "bomb": (png(size=(50_000, 50_000), bits=8, colour=2, rows=[b""]), "decompression bomb"),
    **{
        f"{kind} without its end": (encode(PICTURE, kind)[:-300], "cannot decode|is not")
        for kind in ("JPEG", "PNG", "TIFF", "BMP", "WEBP", "PPM", "AVIF")
    },
    "GIF without its end": (encode(PICTURE, "GIF", optimize=False)[:-300], "cannot decode|is not"),
    "progressive without its end": (encode(PICTURE, progressive=True)[:-300], "is truncated"),
}


def pixels(encoded, *steps):
    image = images.decode(encoded, "a", *steps)
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.mark.parametrize("kind", READ)
def test_the_pixels_are_those_of_the_file(kind):
    encoded, expected = READ[kind]
    np.testing.assert_array_equal(pixels(encoded), expected)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_has_no_pixels_is_refused_in_one_line(kind):
    encoded, reason = REFUSED[kind]
    with pytest.raises(UnreadableImageError, match=reason) as refused:
        images.decode(encoded, "photos/a.png")
    assert "photos/a.png" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_in_exif_is_followed_where_asked(kind, orientation):
    options = {"lossless": True} if kind == "WEBP" else {}
    encoded = encode(PICTURE, kind, exif=turning(orientation), **options)
    stored = np.asarray(Image.open(io.BytesIO(encode(PICTURE, kind, **options))).convert("RGB"))
    turned = np.rot90(stored, {3: 2, 4: 2, 5: -1, 6: -1, 7: 1, 8: 1}.get(orientation, 0))
    shown = turned[:, ::-1] if orientation in (2, 4, 5, 7) else turned
    np.testing.assert_array_equal(pixels(encoded), shown)
    # Pillow itself turns a TIFF file.
    as_stored = shown if kind == "TIFF" else stored
    np.testing.assert_array_equal(pixels(encoded, [images.DECODE]), as_stored)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_an_orientation_in_xmp_is_not_followed(kind):
    encoded = encode(PICTURE, kind, **with_xmp(kind))
    assert XMP in encoded
    assert images.decode(encoded, "a").size == PICTURE.size


def test_jpeg_is_decoded_as_pillow_does_and_four_inks_become_colours(rng):
    image = Image.fromarray(photograph(rng, 500, 400))
    for progressive in (False, True):
        encoded = encode(image, "JPEG", quality=85, progressive=progressive)
        np.testing.assert_array_equal(pixels(encoded), np.asarray(Image.open(io.BytesIO(encoded))))
    encoded = encode(Image.fromarray(photograph(rng, 64, 48, channels=4), "CMYK"), "JPEG")
    inks = np.moveaxis(np.asarray(Image.open(io.BytesIO(encoded))).astype(float), -1, 0)
    expected = [(255 - ink) * (255 - inks[3]) / 255 for ink in inks[:3]]
    # Pillow rounds the product to a whole step.
    np.testing.assert_allclose(pixels(encoded), np.stack(expected, axis=-1), atol=1)


def test_photographs_of_phones_are_read_or_name_the_package(monkeypatch):
    file = io.BytesIO()
    pillow_heif.from_pillow(PICTURE).save(file, quality=95)
    # Half of the rows and columns have colours of their own.
    assert abs(pixels(file.getvalue()).astype(int) - COLOURS).mean() < 6
    monkeypatch.setattr("train.data.steps.FORMATS", ("JPEG", "PNG"))
    file.seek(0)
    with pytest.raises(ImportError, match="pip install pillow-heif"):
        images.opened(file, ("JPEG", "PNG"))
    # Only the given formats are opened.
    with pytest.raises(Image.UnidentifiedImageError):
        images.opened(io.BytesIO(encode(PICTURE, "TIFF")), ("JPEG",))
