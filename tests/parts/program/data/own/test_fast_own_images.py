"""People's images by simplejpeg and cykooz-resizer against those by Pillow."""

import io
import pickle
import sys

import numpy as np
import pytest
from PIL import Image

import train.data
from configs import folder, huggingface, table, tfds
from tests.parts.program.data.own.pictures import picture, write
from tests.parts.program.data.specs import dataset_spec
from train.data import images
from train.data.fast_images import FastPicture
from train.data.image_reader import ImageReader
from train.data.own import image_changes
from train.data.own.image_changes import CHANGES, OwnFraming
from train.data.pictures import PillowPicture
from train.foundation.errors import UserError

ORIENTATION = 0x0112
# All but those that change colours by the whole image, where a step may become several.
IN_PLACE = [name for name in CHANGES if name != "randaugment"]
# Width and height of files: larger, smaller, and as the network gets them.
SIZES = [(151, 97), (97, 151), (31, 21), (48, 40)]
SHAPE = (40, 48, 3)


def photograph(size, mode="RGB"):
    """Smooth shapes and fine noise."""
    rng = np.random.default_rng(size[0])
    smooth = picture("shapes", size=(7, 5)).resize(size, Image.Resampling.BICUBIC)
    noisy = np.asarray(smooth) + rng.normal(scale=12, size=(size[1], size[0], 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).convert(mode)


def encode(image, file_format="JPEG", **options):
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def turned(orientation):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return exif


def readers(shape=SHAPE, *, upright=True, augmentation="none"):
    framing = OwnFraming(shape, augmentation)
    return tuple(ImageReader(framing, upright, kind=kind) for kind in (PillowPicture, FastPicture))


def check(encoded, **options):
    """What both readers make is within a step of each other, and as bright."""
    exact, fast = readers(**options)
    draws = np.random.default_rng(0).random((3, image_changes.NUM_DRAWS))
    pairs = [
        (exact.for_evaluation(encoded, "a"), fast.for_evaluation(encoded, "a")),
        *(
            (exact.for_training(encoded, "a", one), fast.for_training(encoded, "a", one))
            for one in draws
        ),
    ]
    for expected, found in pairs:
        assert (found.shape, found.dtype) == (exact.shape, np.uint8)
        difference = found.astype(int) - expected
        # Two roundings, once an axis, in another order.
        assert abs(difference).max() <= 1
        # A rounding that always goes one way would shift the mean by a quarter or a half.
        assert abs(difference.mean()) < 0.1


@pytest.mark.parametrize("augmentation", IN_PLACE)
@pytest.mark.parametrize("size", SIZES)
def test_pixels_are_within_a_step(augmentation, size):
    check(encode(photograph(size), quality=85), augmentation=augmentation)


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("size", [(151, 97), (40, 48)])
def test_photographs_are_turned_as_pillow_turns_them(orientation, size):
    encoded = encode(photograph(size), quality=85, exif=turned(orientation))
    for augmentation in ("none", "crop_flip", "random_resized_crop"):
        check(encoded, augmentation=augmentation)
    check(encoded, upright=False)


def test_an_orientation_in_xmp_is_not_followed():
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    exif = Image.Exif()
    exif[0x010F] = "camera"
    encoded = encode(photograph((151, 97)), quality=85, xmp=xmp, exif=exif)
    upright, stored = (readers(upright=upright)[1] for upright in (True, False))
    assert (upright.for_evaluation(encoded, "a") == stored.for_evaluation(encoded, "a")).all()
    check(encoded)


@pytest.mark.parametrize("file_format", ["PNG", "TIFF", "WEBP"])
def test_other_formats_are_turned_too(file_format):
    options = {"lossless": True} if file_format == "WEBP" else {}
    check(encode(photograph((151, 97)), file_format, exif=turned(6), **options))


def test_a_damaged_orientation_is_none():
    encoded = encode(photograph((151, 97)), quality=85, exif=turned(6))
    start = encoded.index(b"Exif\0\0") + 6
    for length in (2, 8, 12):
        check(encoded[:start] + bytes([255]) * length + encoded[start + length :])


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_grey_and_four_inks(mode):
    encoded = encode(photograph((151, 97), mode), quality=85)
    for channels in (1, 3):
        check(encoded, shape=(40, 48, channels))


def test_randaugment_is_that_of_the_same_draws():
    encoded = encode(photograph((151, 97)), quality=85)
    exact, fast = readers(augmentation="randaugment")
    rng = np.random.default_rng(0)
    for _ in range(8):
        draws = rng.random(image_changes.NUM_DRAWS)
        difference = fast.for_training(encoded, "a", draws).astype(int) - exact.for_training(
            encoded, "a", draws
        )
        # Few pixels at an edge of posterize, solarize and equalize are far off.
        assert np.median(abs(difference)) <= 1


def test_a_decoded_image_gives_the_pixels_of_its_file():
    encoded = encode(photograph((151, 97)), quality=85)
    fast = readers()[1]
    found = fast.fit(images.decode(encoded, "a"), "a")
    np.testing.assert_array_equal(found, fast.for_evaluation(encoded, "a"))


@pytest.mark.parametrize("recipe", [folder, huggingface, table, tfds])
def test_every_recipe_has_the_field(recipe):
    assert recipe.get_config().dataset.decoding == "exact"


def config(path, decoding):
    found = folder.get_config().dataset
    found.update({"path": str(path), "decoding": decoding})
    return found.to_dict()


def test_the_configuration_chooses(tmp_path):
    write(tmp_path, [f"{name}/{index}.jpg" for name in ("ash", "oak") for index in range(6)])
    for decoding, kind in (("exact", PillowPicture), ("fast", FastPicture)):
        spec = dataset_spec(config(tmp_path, decoding))
        # Of a run, and of a finished run that no longer needs its images.
        reader = spec.load(None).train.images.reader
        assert reader.kind is kind
        assert spec.of_shape((224, 224, 3)).reader.kind is kind
        # It is sent to the processes that decode.
        assert pickle.loads(pickle.dumps(reader)) == reader


@pytest.mark.parametrize("package", ["simplejpeg", "cykooz_resizer"])
def test_a_missing_package_is_named(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delattr(train.data, "fast_images")
    monkeypatch.delitem(sys.modules, "train.data.fast_images")
    with pytest.raises(UserError, match=rf"'fast' needs .* {package}, .*: pip install cyk"):
        dataset_spec(config("photos", "fast"))
    dataset_spec(config("photos", "exact"))
