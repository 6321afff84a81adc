"""From more than eight bits to eight: by what the file says is white, or refused."""

import struct

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data.encoded_images import chunk, encode, png, tiff
from train.data import images
from train.data.images import DecodeOptions, UnreadableImageError

TWELVE = (np.arange(24, dtype=np.uint16).reshape(4, 6) * 178).astype(np.uint16)
NEARLY_BLACK = "it would be nearly black"
# The largest of the samples that a TIFF file has.
MAX_SAMPLE = 281


def grey_png(values, chunks=b""):
    rows = [row.astype(">u2").tobytes() for row in values]
    return png(size=values.shape[::-1], bits=16, colour=0, rows=rows, chunks=chunks)


def colours(values, chunks=b""):
    rows = [np.stack([row] * 3, -1).astype(">u2").tobytes() for row in values]
    return png(size=values.shape[::-1], bits=16, colour=2, rows=rows, chunks=chunks)


def sbit(bits):
    return chunk(b"sBIT", bytes([bits]))


def packed():
    """Two numbers of twelve bits in three bytes each."""
    even, odd = TWELVE[:, ::2], TWELVE[:, 1::2]
    parts = [even >> 4, (even & 15) << 4 | odd >> 8, odd & 255]
    return np.stack(parts, -1).astype(np.uint8).reshape(4, 9)


def packed_tiff():
    width = struct.pack("<HHII", 256, 4, 1, 9)
    return tiff(packed(), bits=12).replace(width, struct.pack("<HHII", 256, 4, 1, 6))


def grey(encoded):
    found = np.asarray(images.decode(encoded, "a"))
    assert (found == found[..., :1]).all()
    return found[..., 0]


@pytest.mark.parametrize(
    "encoded",
    [
        packed_tiff(),
        tiff(TWELVE, bits=16, tags={MAX_SAMPLE: 4095}),
        grey_png(TWELVE, sbit(12)),
        b"P5 6 4 4095\n" + TWELVE.astype(">u2").tobytes(),
    ],
    ids=["bits", "maximum", "sBIT", "maxval"],
)
def test_the_high_eight_of_twelve_bits_are_kept(encoded):
    # Pillow rounds where it scales the values of PGM files to 16 bits.
    assert abs(grey(encoded).astype(int) - (TWELVE >> 4)).max() <= encoded.startswith(b"P5")


def test_a_maximum_that_is_not_one_is_not_believed():
    encoded = tiff(TWELVE * 16, bits=16, tags={MAX_SAMPLE: 4095})
    np.testing.assert_array_equal(grey(encoded), TWELVE >> 4)


@pytest.mark.parametrize("largest", [2**15 - 1, 2**14, 60_000])
def test_the_largest_value_of_one_image_does_not_change_its_brightness(largest):
    values = np.array([[0, 1000, largest]], np.uint16)
    np.testing.assert_array_equal(
        grey(tiff(values, bits=16, tags={MAX_SAMPLE: largest})), values >> 8
    )


@pytest.mark.parametrize(
    ("values", "kind", "shift"),
    [
        (np.array([[0, 1000, 2**31, 2**32 - 1]], np.uint32), 1, 24),
        (np.array([[0, 1000, 2**14, 2**15 - 1]], np.int16), 2, 7),
    ],
    ids=["unsigned 32", "signed 16"],
)
def test_white_is_the_largest_number_of_a_tiff_file(values, kind, shift):
    bits = 8 * values.itemsize
    expected = (values.astype(np.int64) >> shift).astype(np.uint8)
    np.testing.assert_array_equal(grey(tiff(values, bits=bits, kind=kind)), expected)


def test_where_zero_is_white_the_values_are_turned_round():
    values = np.array([[0, 2**15, 2**16 - 1]], np.uint16)
    np.testing.assert_array_equal(grey(tiff(values, bits=16, photometric=0)), [[255, 127, 0]])


@pytest.mark.parametrize(
    "encoded",
    [
        tiff(TWELVE, bits=16),
        encode(Image.fromarray(TWELVE), "PNG"),
        colours(TWELVE),
    ],
    ids=["tiff", "png", "colours"],
)
def test_what_would_be_nearly_black_is_refused(encoded):
    with pytest.raises(UnreadableImageError, match=NEARLY_BLACK) as error:
        images.decode(encoded, "a")
    assert str(error.value).startswith("cannot decode a: no value is above 4,09")
    assert "\n" not in str(error.value)


def test_what_is_black_or_dark_is_read():
    assert not grey(grey_png(np.zeros((4, 6), np.uint16))).any()
    np.testing.assert_array_equal(grey(grey_png(TWELVE + 2)), (TWELVE + 2) >> 8)


def test_a_transparent_value_of_sixteen_bits_lies_on_white_where_asked():
    transparent = 4094
    values = np.where(TWELVE > 2000, 60_000, transparent).astype(np.uint16)
    encoded = grey_png(values, chunk(b"tRNS", struct.pack(">H", transparent)))
    for on_white, expected in ((False, transparent >> 8), (True, 255)):
        found = np.asarray(images.decode(encoded, "a", DecodeOptions(on_white=on_white)))
        assert (found[TWELVE > 2000] == 60_000 >> 8).all()
        assert (found[TWELVE <= 2000] == expected).all()
