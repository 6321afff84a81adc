"""Images that look alike are found by their grey copies, and others are not."""

import io

import numpy as np
import pytest
from PIL import Image, ImageEnhance
from sklearn.datasets import load_digits, load_sample_images

from tests.parts.program.data.own import observations
from train.data.own import near_duplicates, thumbnails


def encoded(image, kind="JPEG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    file.seek(0)
    return file


def copies(images, **options):
    return thumbnails.stacked([thumbnails.make(encoded(image, **options)) for image in images])


def cut(picture, size=(160, 120)):
    """Parts of a photograph that do not overlap."""
    width, height = size
    return [
        picture.crop((left, top, left + width, top + height))
        for top in range(0, picture.height - height + 1, height)
        for left in range(0, picture.width - width + 1, width)
    ]


@pytest.fixture(scope="module")
def photographs():
    """Parts of two photographs, all different."""
    return [part for one in load_sample_images().images for part in cut(Image.fromarray(one))]


CHANGES = {
    "encoded again": lambda image: Image.open(encoded(image, quality=30)),
    "smaller": lambda image: image.resize((image.width // 3, image.height // 3)),
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.2),
    "grey": lambda image: image.convert("L"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_copies_are_found(photographs, change):
    changed = [CHANGES[change](image) for image in photographs]
    both = np.concatenate([copies(photographs), copies(changed, kind="PNG")])
    pairs = near_duplicates.find(both)
    number = len(photographs)
    wanted = {(index, index + number) for index in range(number)}
    found = set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
    # A part that is only sky has little to compare.
    assert len(found & wanted) >= 0.8 * number
    assert not found - wanted
    assert (pairs.correlation >= 0.9).all()


def test_a_photograph_that_is_stored_on_its_side_is_found(photographs):
    exif = Image.Exif()
    exif[0x0112] = 6
    sides = [image.transpose(Image.Transpose.ROTATE_90) for image in photographs]
    turned = [thumbnails.make(encoded(image, exif=exif)) for image in sides]
    pairs = near_duplicates.find(np.concatenate([copies(photographs), thumbnails.stacked(turned)]))
    assert (pairs.second - pairs.first == len(photographs)).sum() >= 0.9 * len(photographs)


def test_different_images_are_not_found(photographs):
    digits = [Image.fromarray((15 * one).astype(np.uint8)) for one in load_digits().images]
    rng = np.random.default_rng(0)
    noise = [Image.fromarray(one) for one in rng.integers(0, 256, (500, 32, 32, 3), np.uint8)]
    flat = [Image.new("RGB", (20, 20), (value, 90, 90)) for value in range(200)]
    for images in (photographs, digits, noise, flat):
        assert len(near_duplicates.find(copies(images, kind="PNG"))) == 0


def test_data_of_one_image_have_no_pairs():
    same = np.tile(np.arange(256, dtype=np.uint8), (300, 1))
    assert len(near_duplicates.find(same)) == 0
    assert len(near_duplicates.find(np.zeros((0, 256), np.uint8))) == 0


def test_pairs_are_found_in_every_block(monkeypatch):
    monkeypatch.setattr(near_duplicates, "_ROWS", 3)
    monkeypatch.setattr(near_duplicates, "_COLUMNS", 4)
    paths = observations.names(8)
    images = [observations.photograph(path) for path in paths]
    pairs = near_duplicates.find(copies(images))
    wanted = {
        (first, second)
        for second, other in enumerate(paths)
        for first, one in enumerate(paths[:second])
        if observations.observation(one) == observations.observation(other)
    }
    assert set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == wanted
    clusters = pairs.clusters(len(paths))
    assert len(set(clusters.tolist())) == len(set(map(observations.observation, paths)))
