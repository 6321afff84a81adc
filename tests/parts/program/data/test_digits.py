"""The embedded digits, the order of batches, and augmentation."""

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.parts.program.data.specs import dataset_spec
from train.data.augmentation import normalize, pad_crop_flip, random_shift


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return dataset_spec({"name": "digits"}).load(str(tmp_path_factory.mktemp("data")))


def test_digits_are_those_of_scikit_learn(digits):
    source = load_digits()
    expected = sorted(
        (label, *(image.ravel() * 15).astype(int))
        for label, image in zip(source.target, source.images, strict=True)
    )
    splits = (digits.train, digits.validation, digits.test)
    found = sorted(
        (label, *image.ravel().astype(int))
        for split in splits
        for label, image in zip(split.labels, split.images, strict=True)
    )
    assert found == expected
    assert [len(split) for split in splits] == [1257, 270, 270]


def test_digits_channel_statistics_are_those_of_the_training_images(digits):
    pixels = digits.train.images / 255
    # The constants are given to three decimals.
    np.testing.assert_allclose(pixels.mean(), dataset_spec({"name": "digits"}).mean[0], atol=5e-4)
    np.testing.assert_allclose(pixels.std(), dataset_spec({"name": "digits"}).std[0], atol=5e-4)


def test_digits_are_prepared_once(tmp_path, digits):
    spec = dataset_spec({"name": "digits"})
    first = spec.load(str(tmp_path))
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = spec.load(str(tmp_path))
    assert written == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for one, other in ((first, again), (first, digits)):
        np.testing.assert_array_equal(one.train.images, other.train.images)
        np.testing.assert_array_equal(one.test.labels, other.test.labels)


def test_random_shift_moves_and_fills_with_zeros(key):
    image = np.zeros((4, 4, 1), np.uint8)
    image[1, 2] = 7
    keys = jax.random.split(key, 200)
    shifted = np.asarray(jax.vmap(lambda key: random_shift(key, image, pixels=1))(keys))
    assert shifted.dtype == np.uint8
    places = {tuple(map(int, np.argwhere(one[..., 0] == 7)[0])) for one in shifted}
    # All nine shifts: the chance that 200 draws miss one is below 9 (8/9)^200 < 1e-9.
    assert places == {(row, column) for row in (0, 1, 2) for column in (1, 2, 3)}
    assert (shifted.sum(axis=(1, 2, 3)) == 7).all()


def test_normalize_gives_mean_zero_and_deviation_one(rng):
    images = rng.integers(0, 256, (50, 8, 8, 2)).astype(np.uint8)
    channels = images.reshape(-1, 2) / 255
    normalized = np.asarray(
        normalize(images, tuple(channels.mean(axis=0)), tuple(channels.std(axis=0)))
    )
    assert normalized.dtype == np.float32
    # Float32 sums of 3,200 numbers of order one.
    np.testing.assert_allclose(normalized.mean(axis=(0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(normalized.std(axis=(0, 1, 2)), 1, atol=1e-5)


def test_pad_crop_flip_is_one_of_the_shifts_or_its_mirror_image(key):
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3) + 1
    padded = np.pad(image, ((2, 2), (2, 2), (0, 0)))
    shifts = [padded[row : row + 4, column : column + 4] for row in range(5) for column in range(5)]
    expected = {one.tobytes() for shift in shifts for one in (shift, shift[:, ::-1])}
    assert len(expected) == 50
    change = jax.jit(jax.vmap(lambda key: pad_crop_flip(key, image, pixels=2)))
    changed = np.asarray(change(jax.random.split(key, 2000)))
    assert changed.dtype == np.uint8
    # The chance that 2,000 draws miss one of 50 is below 50 (49/50)^2000 < 1e-15.
    assert {one.tobytes() for one in changed} == expected
