"""Crops of simplejpeg and cykooz-resizer against those of Pillow."""

import itertools
import pickle

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data.encoded_images import encode, photograph
from tests.parts.program.data.specs import dataset_spec
from train.data import fast_images, images, photographs
from train.data.images import UnreadableImageError
from train.data.pictures import Cut, whole

EXACT, FAST = (photographs.reader_of(decoding) for decoding in ("exact", "fast"))
# Where crops lie: the corners, which show the edges of the image, and between them.
PLACES = [np.array(place) for place in ((0, 0), (0.999, 0.999), (0, 0.999), (0.3, 0.6))]
# Width and height: odd ones, enlarged ones, one side already 256, and much larger or longer ones.
SIZES = [(499, 333), (177, 231), (256, 301), (1601, 1203), (230, 1999)]
CONFIG = {
    "name": "plantnet300k",
    "data_dir": None,
    "num_workers": 0,
    "skip_unreadable": False,
    "decoding": "fast",
}


def check(encoded):
    """Each crop is within a step of Pillow's, but for a few numbers, and as bright."""
    pairs = [
        (EXACT.for_evaluation(encoded, "a"), FAST.for_evaluation(encoded, "a")),
        *(
            (EXACT.for_training(encoded, "a", at), FAST.for_training(encoded, "a", at))
            for at in PLACES
        ),
    ]
    for exact, fast in pairs:
        assert fast.shape == EXACT.shape
        assert fast.dtype == np.uint8
        difference = fast.astype(int) - exact
        # Two roundings, once an axis, in another order: half a step each, in both.
        assert abs(difference).max() <= 2
        assert (abs(difference) > 1).mean() < 1e-4
        # A step in a quarter of the values or less, as the two roundings are mostly the same.
        assert abs(difference).mean() < 0.3
        # A rounding that always goes one way would shift the mean by a quarter or a half.
        assert abs(difference.mean()) < 0.1


@pytest.mark.parametrize("size", SIZES)
def test_any_size(rng, size):
    check(encode(Image.fromarray(photograph(rng, *size)), quality=85))


def files(rng):
    """The kinds of files, and whether simplejpeg decodes them."""
    colours = Image.fromarray(photograph(rng, 301, 275))
    exif = Image.Exif()
    exif[0x0112] = 6  # To be turned by a quarter, which is not done.
    yield "progressive", encode(colours, progressive=True), True
    yield "every colour kept", encode(colours, subsampling="4:4:4"), True
    yield "colours of half the width", encode(colours, subsampling="4:2:2"), True
    yield "red, green and blue", encode(colours, keep_rgb=True), True
    yield "greyscale", encode(colours.convert("L")), True
    yield "turned by EXIF", encode(colours, exif=exif), True
    yield "more after the end", encode(colours) + b"more", True
    yield "four inks", encode(Image.fromarray(photograph(rng, 301, 275, channels=4), "CMYK")), False
    yield "PNG", encode(colours, "PNG"), False
    yield "PNG with a palette", encode(colours.convert("P"), "PNG"), False


def test_any_kind_of_file(rng):
    for name, encoded, is_decoded in files(rng):
        check(encoded)
        found = fast_images.decode_jpeg(encoded)
        assert (found is not None) == is_decoded, name
        if is_decoded:
            np.testing.assert_array_equal(found, np.asarray(images.decode(encoded, "a")), name)


def outcome(reader, encoded):
    """The pixels of the picture that a reader opens, or its error."""
    try:
        picture = reader._opened(encoded, "flower.jpg")
    except UnreadableImageError as error:
        return str(error)
    return np.asarray(picture.cut(Cut(whole(picture.size), picture.size))).tolist()


def test_damaged_files_give_what_pillow_gives(rng):
    encoded = encode(Image.fromarray(photograph(rng, 96, 64)), quality=85)
    start = encoded.index(b"\xff\xda") + 14
    cut = [encoded[:length] for length in (0, 2, 100, start, len(encoded) // 2, len(encoded) - 2)]
    # Bytes of the coefficients: some are still a picture, with which libjpeg-turbo warns or not.
    changed = [
        encoded[:place] + bytes([value]) + encoded[place + 1 :]
        for place, value in itertools.product(range(start, len(encoded), 97), (0, 0x55, 0xFF))
    ]
    outcomes = [
        (outcome(EXACT, one), outcome(FAST, one))
        for one in (b"<html>404 not found</html>", *cut, *changed)
    ]
    for expected, found in outcomes:
        assert found == expected
    assert sum("truncated" in str(expected)[:200] for expected, _ in outcomes) >= 2
    # Pillow reads some of the changed ones, so that both kinds are compared.
    assert sum(isinstance(expected, list) for expected, _ in outcomes) > 10


def test_more_pixels_than_pillow_reads_are_refused(rng, monkeypatch):
    encoded = encode(Image.fromarray(photograph(rng, 96, 64)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(UnreadableImageError, match="decompression bomb"):
        FAST.for_evaluation(encoded, "flower.jpg")


def test_the_configuration_chooses():
    assert dataset_spec(CONFIG).reader == FAST
    assert dataset_spec(CONFIG).reader.kind is fast_images.FastPicture
    assert dataset_spec(CONFIG | {"decoding": "exact"}).reader == EXACT
    # It is sent to the processes that decode.
    assert pickle.loads(pickle.dumps(FAST)) == FAST
