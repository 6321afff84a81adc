"""The embedded digits: their pixels, their splits and their statistics."""

import hashlib

import numpy as np
from sklearn.datasets import load_digits

from tests.parts.program.data.specs import dataset_spec


def test_digits_are_those_of_scikit_learn_in_the_same_splits_in_every_version():
    source, spec = load_digits(), dataset_spec({"name": "digits"})
    splits = spec.load(None).splits.values()
    expected = sorted(
        (label, *(image.ravel() * 15).astype(int))
        for label, image in zip(source.target, source.images, strict=True)
    )
    found = sorted(
        (label, *image.ravel().astype(int))
        for split in splits
        for label, image in zip(split.labels, split.rows(...), strict=True)
    )
    assert found == expected
    assert [len(split) for split in splits] == [1257, 270, 270]
    # Pinned: two runs of one configuration would no longer be of the same data.
    bits = b"".join(split.rows(...).tobytes() for split in splits)
    assert hashlib.sha256(bits).hexdigest().startswith("914d050d8aa48a39")
    for split in splits:
        # Stratified: as many of each class as its share of the 1,797 images.
        shares = np.bincount(source.target) * len(split) / 1797
        assert abs(np.bincount(split.labels) - shares).max() < 1
    # The constants are given to three decimals, and are those of the training images.
    pixels = next(iter(splits)).rows(...) / 255
    np.testing.assert_allclose([pixels.mean(), pixels.std()], [*spec.mean, *spec.std], atol=5e-4)
