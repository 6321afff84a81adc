"""Which part of an image becomes the pixels: by the published rule, and by the rule for users."""

import zlib

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data.encoded_images import encode, photograph
from tests.parts.program.data.pictures import picture
from train.data import photographs
from train.data.crops import ImageReader
from train.data.image_changes import CHANGES, NUM_DRAWS
from train.data.images import UnreadableImageError
from train.data.steps import resized

# Width and height: landscape, portrait, square, enlarged, one side already 256; for the middle,
# rests of 69, whose half rounds down to 34, and of 415, whose half rounds up to 208.
SIZES = [
    *((500, 375), (333, 500), (400, 400), (180, 231), (256, 300), (300, 256)),
    *((229, 200), (200, 229), (512, 205), (205, 512)),
]
PUBLISHED = photographs.READER
MIDDLE = np.full(NUM_DRAWS, 0.5)


def reader(shape=(10, 12, 3), *, augmentation="none"):
    return ImageReader.own(shape, CHANGES[augmentation])


def draws(seed):
    return np.random.default_rng(seed).random(NUM_DRAWS)


# The published rule.


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
def test_the_middle_is_that_of_torchvision_and_random_crops_are_parts_as_large(rng, size):
    image = Image.fromarray(photograph(rng, *size))
    pixels = np.asarray(torchvision_resize(image))
    height, width, _ = pixels.shape
    top, left = round((height - 224) / 2.0), round((width - 224) / 2.0)
    expected = pixels[top : top + 224, left : left + 224]
    np.testing.assert_array_equal(PUBLISHED.pixels(image, "a"), expected)
    # A random crop reaches every place.
    across, down = pixels.shape[0] - 223, pixels.shape[1] - 223
    # The first, the last and one in between; each place has an equal part of [0, 1).
    for top, left in ((0, 0), (across - 1, down - 1), (across // 2, down // 3)):
        for inside in (0.01, 0.99):
            uniform = np.array([(top + inside) / across, (left + inside) / down])
            expected = pixels[top : top + 224, left : left + 224]
            found = PUBLISHED.for_training(encode(image, "PNG"), "a", uniform)
            # Sums that are rounded twice, once an axis, come out up to a step apart where the axes
            # or the last bits of the edges are others; they are not all on one side.
            difference = found.astype(int) - expected
            assert abs(difference).max() <= 1
            assert abs(difference.mean()) < 0.02


def test_published_photographs_are_not_turned_and_grey_data_are_grey_before_they_are_resized(rng):
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.fromarray(photograph(rng, 60, 40))
    turned = PUBLISHED.for_evaluation(encode(image, "PNG", exif=exif), "a")
    np.testing.assert_array_equal(turned, PUBLISHED.pixels(image, "a"))
    pixels = ImageReader.plain((8, 9, 1)).pixels(image, "a")
    expected = image.convert("L").resize((12, 8), Image.Resampling.BILINEAR).crop((1, 0, 10, 8))
    np.testing.assert_array_equal(pixels[..., 0], expected)


# The rule for users' images.


def test_another_size_is_resized_and_its_middle_cropped():
    for size in ((300, 200), (200, 300), (16, 16), (5, 4)):
        image = Image.new("RGB", size, (10, 200, 30))
        pixels = reader((16, 16, 3)).for_evaluation(encode(image, "PNG"), "a")
        np.testing.assert_array_equal(pixels, np.full((16, 16, 3), (10, 200, 30)))
    # A square in the middle stays in the middle.
    image = Image.new("L", (160, 120))
    image.paste(255, (76, 56, 84, 64))
    pixels = reader((16, 16, 1)).for_evaluation(encode(image, "PNG"), "a")[..., 0].astype(float)
    for positions in np.mgrid[:16, :16]:
        assert (positions * pixels).sum() / pixels.sum() == pytest.approx(7.5, abs=0.1)
    # It is a seventh smaller than what covers it. Resized to 16 x 24 pixels, of which 14 x 21 stay.
    box, size = resized(reader((21, 14, 3)).fit.resize, (160, 240))
    assert (box, size) == (pytest.approx((10, 15, 150, 225)), (14, 21))
    # Resized to 16 x 32 pixels.
    box, _ = resized(reader((14, 14, 3)).fit.resize, (160, 320))
    assert box == pytest.approx((10, 90, 150, 230))


@pytest.mark.parametrize("made", [reader((224, 224, 3)), PUBLISHED, ImageReader.plain((90, 90, 3))])
def test_an_image_too_narrow_to_be_resized_is_refused(made):
    encoded = encode(Image.new("L", (1, 30_000)), "PNG")
    for read in (made.for_evaluation, lambda *one: made.for_training(*one, draws(0))):
        with pytest.raises(UnreadableImageError, match="a: it is too long and narrow, 1 x 30000 p"):
            read(encoded, "a")


# Random changes.


# With Pillow 13: other versions may resize the axes in another order.
PINNED = {
    "none": 1182998221,
    "flip": 1322674893,
    "crop_flip": 2153056422,
    "random_resized_crop": 2900719972,
    "randaugment": 4039295337,
}


@pytest.mark.parametrize("augmentation", CHANGES)
def test_the_pixels_are_those_of_every_run(augmentation):
    pixels = (np.arange(70 * 50 * 3) ** 2 % 251).astype(np.uint8).reshape(50, 70, 3)
    image = encode(Image.fromarray(pixels), "PNG")
    changed = reader((20, 24, 3), augmentation=augmentation)
    made = [changed.for_training(image, "a", draws(seed)) for seed in range(8)]
    assert zlib.crc32(np.stack(made).tobytes()) == PINNED[augmentation]


def test_a_flip_is_of_the_whole_image_and_a_padded_crop_moves_by_up_to_an_eighth():
    image = picture("a", size=(16, 16))
    encoded, expected = encode(image, "PNG"), np.asarray(image)
    keep, flip, corner = MIDDLE.copy(), MIDDLE.copy(), MIDDLE.copy()
    keep[4], flip[4], corner[4], corner[:2] = 0.9, 0.1, 0.9, 0.0
    # An image of the size is left as it is, and evaluation never changes anything at random.
    for augmentation in CHANGES:
        changed = reader((16, 16, 3), augmentation=augmentation)
        np.testing.assert_array_equal(changed.for_evaluation(encoded, "a"), expected)
    for augmentation in ("none", "flip", "crop_flip"):
        changed = reader((16, 16, 3), augmentation=augmentation)
        np.testing.assert_array_equal(changed.for_training(encoded, "a", keep), expected)
        if augmentation != "none":
            flipped = changed.for_training(encoded, "a", flip)
            np.testing.assert_array_equal(flipped, expected[:, ::-1])
    moved = changed.for_training(encoded, "a", corner)
    np.testing.assert_array_equal(moved[2:, 2:], expected[:-2, :-2])
    assert (moved[:2] == 0).all()
