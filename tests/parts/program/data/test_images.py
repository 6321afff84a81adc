"""Decoding, resizing and cropping, pixel by pixel against Pillow's and torchvision's semantics."""

import io

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.parts.program.data.encoded_images import encode, photograph
from train.data import images, photographs
from train.data.images import UnreadableImageError

# Width and height: landscape, portrait, square, enlarged, one side already 256; for the middle,
# rests of 69, whose half rounds down to 34, and of 415, whose half rounds up to 208.
SIZES = [
    *((500, 375), (333, 500), (400, 400), (180, 231), (256, 300), (300, 256)),
    *((229, 200), (200, 229), (512, 205), (205, 512)),
]
READER = photographs.reader_of("exact")


def torchvision_resize(image):
    """Resize(256): the shorter side at 256, the longer one truncated, no work if it is."""
    width, height = image.size
    short, long = min(width, height), max(width, height)
    if short == 256:
        return image
    new_long = int(256 * long / short)
    size = (256, new_long) if width <= height else (new_long, 256)
    return image.resize(size, Image.Resampling.BILINEAR)


@pytest.mark.parametrize("size", SIZES)
def test_center_crop_is_that_of_torchvision(rng, size):
    image = Image.fromarray(photograph(rng, *size))
    pixels = np.asarray(torchvision_resize(image))
    height, width, _ = pixels.shape
    top, left = round((height - 224) / 2.0), round((width - 224) / 2.0)
    expected = pixels[top : top + 224, left : left + 224]
    np.testing.assert_array_equal(READER.fit(image, "a"), expected)


@pytest.mark.parametrize("size", SIZES)
def test_random_crop_reaches_every_place(rng, size):
    image = Image.fromarray(photograph(rng, *size))
    pixels = np.asarray(torchvision_resize(image))
    rows, columns = pixels.shape[0] - 223, pixels.shape[1] - 223
    # The first, the last and one in between; each place has an equal part of [0, 1).
    for top, left in ((0, 0), (rows - 1, columns - 1), (rows // 2, columns // 3)):
        for inside in (0.01, 0.99):
            uniform = np.array([(top + inside) / rows, (left + inside) / columns])
            expected = pixels[top : top + 224, left : left + 224]
            found = READER.for_training(encode(image, "PNG"), "a", uniform)
            # Sums that are rounded twice, once an axis, come out up to a step apart where the axes
            # or the last bits of the edges are others; they are not all on one side.
            difference = found.astype(int) - expected
            assert abs(difference).max() <= 1
            assert abs(difference.mean()) < 0.02


def test_jpeg_is_decoded_as_pillow_does(rng):
    encoded = encode(Image.fromarray(photograph(rng, 500, 400)), "JPEG", quality=85)
    expected = np.asarray(Image.open(io.BytesIO(encoded)))
    np.testing.assert_array_equal(np.asarray(images.decode(encoded, "a")), expected)


def test_greyscale_becomes_three_equal_channels(rng):
    grey = photograph(rng, 30, 20, channels=1)[..., 0]
    for file_format in ("PNG", "BMP"):
        decoded = np.asarray(images.decode(encode(Image.fromarray(grey), file_format), "a"))
        np.testing.assert_array_equal(decoded, np.stack([grey] * 3, axis=-1))


def test_cmyk_becomes_rgb_as_pillow_does(rng):
    inks = Image.fromarray(photograph(rng, 64, 48, channels=4), "CMYK")
    encoded = encode(inks, "JPEG", quality=90)
    decoded = images.decode(encoded, "a")
    assert decoded.mode == "RGB"
    cyan, magenta, yellow, black = (
        plane.astype(float)
        for plane in np.moveaxis(np.asarray(Image.open(io.BytesIO(encoded))), -1, 0)
    )
    expected = [(255 - ink) * (255 - black) / 255 for ink in (cyan, magenta, yellow)]
    # Pillow rounds the product to a whole step.
    np.testing.assert_allclose(np.asarray(decoded), np.stack(expected, axis=-1), atol=1)


@pytest.mark.parametrize("file_format", ["PNG", "TIFF"])
def test_of_sixteen_bits_the_high_eight_stay(file_format):
    grey = np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)
    decoded = np.asarray(images.decode(encode(Image.fromarray(grey), file_format), "a"))
    np.testing.assert_array_equal(decoded, np.stack([grey >> 8] * 3, axis=-1))


def test_a_rotation_in_exif_is_not_made(rng):
    image = Image.fromarray(photograph(rng, 60, 40))
    exif = Image.Exif()
    exif[0x0112] = 6  # To be turned by a quarter.
    encoded = encode(image, "JPEG", exif=exif)
    assert Image.open(io.BytesIO(encoded)).getexif()[0x0112] == 6
    assert images.decode(encoded, "a").size == (60, 40)


XMP = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'


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


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_an_orientation_in_xmp_is_not_followed(rng, kind):
    image = Image.fromarray(photograph(rng, 60, 40))
    encoded = encode(image, kind, **with_xmp(kind))
    assert XMP in encoded
    assert images.turned_upright(images.decode(encoded, "a")).size == (60, 40)


def test_a_palette_with_transparency_gives_its_colours():
    places = (np.arange(64, dtype=np.uint8) % 4).reshape(8, 8)
    palette = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 8, 7]], np.uint8)
    image = Image.fromarray(places).convert("P")
    image.putpalette(palette.tobytes())
    encoded = encode(image, "PNG", transparency=bytes([0, 100, 200, 255]))
    np.testing.assert_array_equal(np.asarray(images.decode(encoded, "a")), palette[places])


def test_what_is_not_all_of_an_uncompressed_image_is_left_to_pillow(rng):
    encoded = images.uncompressed(Image.fromarray(photograph(rng, 7, 5)))
    for damaged in (encoded[:-1], encoded.replace(b"P6 7", b"P6 0"), b"P6 0 0 255\n"):
        with pytest.raises(UnreadableImageError):
            images.decode(damaged, "a")
    # Pillow ignores what follows the pixels.
    longer = images.decode(encoded + b"0", "a")
    np.testing.assert_array_equal(longer, images.decode(encoded, "a"))
    wide = images.uncompressed(Image.fromarray(photograph(rng, 1000, 2)))
    np.testing.assert_array_equal(images.decode(wide, "a"), Image.open(io.BytesIO(wide)))
