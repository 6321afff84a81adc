"""Pixels of people's images: size, colours, orientation, and random changes."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data.own.pictures import picture, sixteen_bits
from tests.rows import rows
from train.data.image_reader import ImageReader
from train.data.own import image_changes
from train.data.own.image_changes import CHANGES, OwnFraming

MIDDLE = np.full(image_changes.NUM_DRAWS, 0.5)


def encoded(image, file_format="PNG", **options):
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def reader(shape=(10, 12, 3), *, upright=True, augmentation="none"):
    return ImageReader(OwnFraming(shape, augmentation), upright)


def draws(seed):
    return np.random.default_rng(seed).random(image_changes.NUM_DRAWS)


def test_an_image_of_the_size_is_left_as_it_is():
    image = picture("a")
    for pixels in (
        reader().for_evaluation(encoded(image), "a"),
        reader().for_training(encoded(image), "a", draws(0)),
    ):
        np.testing.assert_array_equal(pixels, np.asarray(image))


@pytest.mark.parametrize("size", [(300, 200), (200, 300), (16, 16), (5, 4)])
def test_another_size_is_resized_and_its_middle_cropped(size):
    image = Image.new("RGB", size, (10, 200, 30))
    pixels = reader((16, 16, 3)).for_evaluation(encoded(image), "a")
    assert pixels.shape == (16, 16, 3)
    assert (pixels == (10, 200, 30)).all()
    # A cross in the middle stays in the middle.
    image = Image.new("L", (160, 120))
    image.paste(255, (76, 56, 84, 64))
    pixels = reader((16, 16, 1)).for_evaluation(encoded(image), "a")[..., 0].astype(float)
    rows, columns = np.mgrid[:16, :16]
    for positions in (rows, columns):
        assert (positions * pixels).sum() / pixels.sum() == pytest.approx(7.5, abs=0.1)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_any_mode_becomes_the_channels_of_the_data(mode):
    image = sixteen_bits("a") if mode == "I;16" else picture("a", mode=mode)
    for channels in (1, 3):
        pixels = reader((10, 12, channels)).for_evaluation(encoded(image, "TIFF"), "a")
        assert (pixels.shape, pixels.dtype) == ((10, 12, channels), np.uint8)


def test_the_orientation_of_sixteen_bits_is_followed():
    exif = Image.Exif()
    exif[0x0112] = 6  # Rotated by a quarter to the right when it is shown.
    values = np.arange(120, dtype=np.uint16).reshape(10, 12)
    # The transparent value is 60,000, more than eight bits hold.
    file = encoded(Image.fromarray(values << 8), exif=exif, transparency=60_000)
    pixels = reader((12, 10, 1)).for_evaluation(file, "a")[..., 0]
    np.testing.assert_array_equal(pixels, np.rot90(values, -1))
    pixels = reader((10, 12, 1), upright=False).for_evaluation(file, "a")[..., 0]
    np.testing.assert_array_equal(pixels, values)


def test_the_orientation_is_followed_where_asked():
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = encoded(picture("a", size=(10, 12)), exif=exif)
    turned = reader((10, 12, 3)).for_evaluation(stored, "a")
    np.testing.assert_array_equal(turned, np.rot90(np.asarray(picture("a", size=(10, 12))), k=-1))
    as_stored = reader((12, 10, 3), upright=False).for_evaluation(stored, "a")
    np.testing.assert_array_equal(as_stored, np.asarray(picture("a", size=(10, 12))))


@pytest.mark.parametrize("augmentation", [name for name in CHANGES if name != "none"])
@pytest.mark.parametrize("size", rows([(40, 30)], [(12, 10), (3, 50)]))
def test_changes_are_functions_of_the_draws(augmentation, size):
    changed = reader(augmentation=augmentation)
    image = encoded(picture("a", size=size))
    pixels = [changed.for_training(image, "a", draws(seed)) for seed in range(24)]
    again = changed.for_training(image, "a", draws(0))
    np.testing.assert_array_equal(pixels[0], again)
    assert all((one.shape, one.dtype) == ((10, 12, 3), np.uint8) for one in pixels)
    different = len({one.tobytes() for one in pixels})
    assert different == 2 if augmentation == "flip" else different > 5
    # Evaluation never changes anything at random.
    np.testing.assert_array_equal(
        changed.for_evaluation(image, "a"), reader().for_evaluation(image, "a")
    )


def test_a_flip_is_that_of_the_whole_image():
    image = picture("a")
    flip, keep = MIDDLE.copy(), MIDDLE.copy()
    flip[4], keep[4] = 0.1, 0.9
    flipping = reader(augmentation="flip")
    np.testing.assert_array_equal(
        flipping.for_training(encoded(image), "a", flip), np.asarray(image)[:, ::-1]
    )
    np.testing.assert_array_equal(
        flipping.for_training(encoded(image), "a", keep), np.asarray(image)
    )


def test_a_padded_crop_moves_by_up_to_an_eighth():
    cropping = reader((16, 16, 3), augmentation="crop_flip")
    image = picture("a", size=(16, 16))
    corner = MIDDLE.copy()
    corner[:2], corner[4] = 0.0, 0.9
    moved = cropping.for_training(encoded(image), "a", corner)
    np.testing.assert_array_equal(moved[2:, 2:], np.asarray(image)[:-2, :-2])
    assert (moved[:2] == 0).all()
    middle = MIDDLE.copy()
    middle[4] = 0.9
    np.testing.assert_array_equal(
        cropping.for_training(encoded(image), "a", middle), np.asarray(image)
    )


def test_parts_have_every_area_and_lie_everywhere():
    # A ramp: the mean of a part says where it lies, its spread how large it is.
    ramp = Image.fromarray(np.tile(np.arange(256, dtype=np.uint8), (256, 1)))
    resizing = reader((8, 8, 1), augmentation="random_resized_crop")
    parts = [
        resizing.for_training(encoded(ramp), "a", draws(seed))[..., 0].astype(int)
        for seed in range(200)
    ]
    widths = [np.ptp(part) for part in parts]
    middles = [part.mean() for part in parts]
    assert min(widths) < 90
    assert max(widths) > 200
    assert min(middles) < 80
    assert max(middles) > 175
