"""Images that look alike are found by their grey copies, and others are not."""

import io

import numpy as np
import pytest
from PIL import Image, ImageEnhance
from sklearn.datasets import load_digits, load_sample_images

from tests.parts.program.data import observations
from tests.parts.program.data.encoded_images import encode
from tests.parts.program.data.test_look import examples_of
from train.data import look, near_duplicates
from train.data.examples import Split


def copies(pictures, file_format="PNG"):
    return look.look(examples_of([encode(one, file_format) for one in pictures])).copies


def found_pairs(pairs):
    return set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))


@pytest.fixture(scope="module")
def photographs():
    """Parts of two photographs, all different."""
    return [
        Image.fromarray(one[top : top + 120, left : left + 160])
        for one in load_sample_images().images
        for top in range(0, 427 - 120, 120)
        for left in range(0, 640, 160)
    ]


def cut(part):
    """What cuts a part off at each side."""
    return lambda image: image.crop(
        [round(part * one) for one in (image.width, image.height)]
        + [round((1 - part) * one) for one in (image.width, image.height)]
    )


# A change, and the least part of the copies that is found. A part that is only sky has little to
# compare.
CHANGES = {
    "encoded again": (lambda image: Image.open(io.BytesIO(encode(image, quality=30))), 0.9),
    "smaller": (lambda image: image.resize((image.width // 3, image.height // 3)), 0.9),
    "brighter": (lambda image: ImageEnhance.Brightness(image).enhance(1.2), 0.8),
    "grey": (lambda image: image.convert("L"), 0.9),
    "without its edges": (cut(0.05), 0.8),
    "almost without its edges": (cut(0.025), 0.7),
}


@pytest.mark.parametrize("change", CHANGES)
def test_copies_are_found(photographs, change):
    make, least = CHANGES[change]
    changed, number = copies([make(one) for one in photographs]), len(photographs)
    pairs = near_duplicates.alike(np.concatenate([changed, copies(photographs, "JPEG")]))
    wanted, found = {(index, index + number) for index in range(number)}, found_pairs(pairs)
    assert len(found & wanted) >= least * number
    assert not found - wanted
    assert (pairs.correlation >= 0.9).all()


def test_different_images_are_not_found(photographs):
    digits = [Image.fromarray((15 * one).astype(np.uint8)) for one in load_digits().images]
    rng = np.random.default_rng(0)
    noise = [Image.fromarray(one) for one in rng.integers(0, 256, (500, 32, 32, 3), np.uint8)]
    flat = [Image.new("RGB", (20, 20), (value, 90, 90)) for value in range(200)]
    for pictures in (photographs, digits, noise, flat):
        assert len(near_duplicates.alike(copies(pictures)).first) == 0
    # Of digits, the same ones.
    pairs = near_duplicates.alike(copies([*digits, *digits[:5]]))
    assert (pairs.second - pairs.first).tolist() == [len(digits)] * 5
    same = np.tile(np.arange(256, dtype=np.uint8), (300, 1))
    assert len(near_duplicates.alike(same).first) == 0
    assert len(near_duplicates.alike(same[:0]).first) == 0

    # Nor among copies.
    coarse = rng.integers(0, 256, (3000, 6, 6)).astype(np.uint8)
    size = (near_duplicates.SIDE, near_duplicates.SIDE)
    smooth = [Image.fromarray(one).resize(size, Image.Resampling.BICUBIC) for one in coarse]
    shapes = np.array([np.asarray(one).ravel() for one in smooth])
    noisy = np.clip(shapes + rng.integers(-9, 10, shapes.shape), 0, 255)
    # One of few shapes, but hardly to be seen.
    flat = 128 + shapes[:1] // 64 + (rng.random((50, shapes.shape[1])) < 0.02)
    pairs = near_duplicates.alike(np.concatenate([shapes, noisy, flat]).astype(np.uint8))
    found = found_pairs(pairs)
    assert len(found) >= 2900
    assert not found - {(index, index + len(shapes)) for index in range(len(shapes))}


def test_images_that_look_like_one_of_another_split_are_listed(monkeypatch):
    # Pairs are in every block.
    monkeypatch.setattr(near_duplicates, "_ROWS", 3)
    monkeypatch.setattr(near_duplicates, "_COLUMNS", 4)
    names = observations.names(6)
    contents = [encode(observations.photograph(name)) for name in names]
    splits = [Split((index * 7) % 3) for index in range(len(names))]
    examples = examples_of(contents, splits=splits, names=names)
    rows, line = near_duplicates.between_splits(examples, look.look(examples).copies)
    of = observations.observation
    first = {}
    for name, split in zip(names, splits, strict=True):
        first[of(name)] = min(split, first.get(of(name), split))
    pairs = zip(names, splits, strict=True)
    assert [row[0] for row in rows] == [name for name, split in pairs if first[of(name)] < split]
    for name, split, label, other, its_split, its_label, correlation in rows:
        assert of(name) == of(other)
        assert Split[its_split.upper()] < Split[split.upper()]
        assert {label, its_label} <= {"ash", "birch"}
        assert 0.9 <= float(correlation) <= 1
    assert line.startswith("near-duplicates: ")
    number = splits.count(Split.VALIDATION) + splits.count(Split.TEST)
    assert f"{len(rows)} of {number} images of validation and test look like an image of" in line
    undivided = examples_of(contents, splits=[Split.TRAIN] * len(names))
    assert near_duplicates.between_splits(undivided, look.look(examples).copies) == ([], "")
