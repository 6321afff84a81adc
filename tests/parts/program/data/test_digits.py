"""The embedded digits, and their normalization."""

import hashlib

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.parts.program.data.specs import dataset_spec
from train.data.augmentation import normalize


@pytest.fixture(scope="module")
def digits():
    return dataset_spec({"name": "digits"}).load(None)


def rows(split):
    return split.array[split.places]


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
        for label, image in zip(split.labels, rows(split), strict=True)
    )
    assert found == expected
    assert [len(split) for split in splits] == [1257, 270, 270]


def test_digits_channel_statistics_are_those_of_the_training_images(digits):
    pixels, spec = rows(digits.train) / 255, dataset_spec({"name": "digits"})
    # The constants are given to three decimals.
    np.testing.assert_allclose([pixels.mean(), pixels.std()], [*spec.mean, *spec.std], atol=5e-4)


def test_the_splits_do_not_change_between_versions(digits):
    """Two runs of one configuration would no longer be of the same data."""
    bits = b"".join(rows(split).tobytes() for split in digits.splits.values())
    assert hashlib.sha256(bits).hexdigest().startswith("914d050d8aa48a39")
    for split in digits.splits.values():
        # Stratified: as many of each class as its share of the 1,797 images.
        counts = np.bincount(split.labels)
        shares = np.bincount(load_digits().target) * len(split) / 1797
        assert abs(counts - shares).max() < 1


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
