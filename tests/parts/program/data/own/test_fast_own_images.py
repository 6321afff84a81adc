"""People's images by simplejpeg and cykooz-resizer against those by Pillow."""

import io
import itertools
import pickle

import numpy as np
import pytest
from PIL import Image

from configs import folder
from tests.parts.program.data.own.pictures import picture, write
from tests.parts.program.data.specs import dataset_spec
from tests.rows import rows
from train.data.fast_images import FastPicture
from train.data.image_reader import ImageReader
from train.data.own import image_changes
from train.data.own.image_changes import CHANGES, OwnFraming
from train.data.pictures import PillowPicture

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


@pytest.mark.parametrize(
    ("augmentation", "size"),
    rows(zip(IN_PLACE, SIZES, strict=False), itertools.product(IN_PLACE, SIZES)),
)
def test_pixels_are_within_a_step(augmentation, size):
    check(encode(photograph(size), quality=85), augmentation=augmentation)


@pytest.mark.parametrize("orientation", range(10))
def test_photographs_are_turned_as_pillow_turns_them(orientation):
    encoded = encode(photograph((151, 97)), quality=85, exif=turned(orientation))
    for augmentation in ("none", "crop_flip", "random_resized_crop"):
        check(encoded, augmentation=augmentation)
    check(encoded, upright=False)


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
