"""Validation examples that are held out of published data sets: balanced, and constant."""

import numpy as np
import pytest

from train.data import splits
from train.data.splits import Holdout
from train.foundation.errors import UserError


@pytest.mark.parametrize("balanced", [True, False])
def test_cifar100_split(balanced):
    # CIFAR-100's training labels, as far as their counts go.
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 500))
    train, validation = splits.hold_out(labels, Holdout(5000, balanced), num_classes=100)
    assert (len(train), len(validation)) == (45_000, 5_000)
    np.testing.assert_array_equal(np.union1d(train, validation), np.arange(50_000))
    counts = np.bincount(labels[validation], minlength=100)
    assert (counts.min() == counts.max() == 50) == balanced
    # Drawn from all over: the mean place of 5,000 has a standard error of 50000 / sqrt(12 * 5000).
    assert abs(validation.mean() - 25_000) < 5 * 50_000 / np.sqrt(12 * 5000)


def test_shuffled_examples_have_the_order_of_files_of_tensorflow_datasets():
    # Pinned: that of its hashes, in which published results were trained.
    expected = [6, 1, 8, 9, 4, 3, 2, 7, 10, 5, 11, 0]
    assert splits.shuffled("test", np.arange(12)).tolist() == expected
    assert splits.shuffled("train", np.arange(12)).tolist() != expected


def test_splits_are_those_of_every_run():
    # Pinned: another order would be another split, and results could not be compared.
    labels = np.arange(40, dtype=np.int32) % 4
    for balanced, expected in ((True, [9, 18, 19, 20]), (False, [9, 13, 18, 20])):
        _, validation = splits.hold_out(labels, Holdout(4, balanced), num_classes=4)
        assert validation.tolist() == expected


def test_the_last_class_without_an_example_is_not_passed_over():
    with pytest.raises(UserError, match="of each than the 0 of the smallest; got 4"):
        splits.hold_out(np.arange(30) % 3, Holdout(4, balanced=True), num_classes=4)
