"""Held-out validation examples and training subsets: disjoint, balanced, nested, and constant."""

import numpy as np
import pytest

from train.data import splits
from train.data.splits import Holdout
from train.foundation.errors import UserError


@pytest.fixture
def labels():
    """CIFAR-100's training labels, as far as their counts go."""
    return np.random.default_rng(0).permutation(np.repeat(np.arange(100), 500)).astype(np.int32)


@pytest.mark.parametrize("balanced", [True, False])
def test_cifar100_split(labels, balanced):
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
    subset = splits.balanced_subset(labels, np.arange(40), 1, num_classes=4)
    assert subset.tolist() == [3, 6, 21, 32]


def test_subsets_are_balanced_nested_and_of_the_training_part(labels):
    train, validation = splits.hold_out(labels, Holdout(5000, balanced=True), num_classes=100)
    smaller = set[int]()
    for each in (64, 128, 320, 450):
        subset = splits.balanced_subset(labels, train, each, num_classes=100)
        assert (np.bincount(labels[subset]) == each).all()
        assert (np.diff(subset) > 0).all()
        assert smaller <= set(subset.tolist()) <= set(train.tolist())
        smaller = set(subset.tolist())
    assert smaller == set(train.tolist())
    assert not smaller & set(validation.tolist())


def test_subsets_that_need_not_be_balanced_are_nested():
    train = np.arange(0, 3000, 3)
    smaller = set[int]()
    for size in (10, 500, 1000):
        subset = splits.subset(train, size)
        assert len(subset) == size
        assert smaller <= set(subset.tolist()) <= set(train.tolist())
        # From all over: twice a standard error of at most 3000 / sqrt(12 size), a fixed draw.
        assert abs(subset.mean() - 1500) < 2 * 3000 / np.sqrt(12 * size)
        smaller = set(subset.tolist())


def test_a_class_that_is_too_small_is_refused():
    with pytest.raises(UserError, match=r"train_size must be at most .* 4 times 9; got 40"):
        splits.balanced_subset(np.arange(39) % 4, np.arange(39), 10, num_classes=4)


def test_the_last_class_without_an_example_is_not_passed_over():
    labels = np.arange(30) % 3
    with pytest.raises(UserError, match="4 takes 1 of each, and class 3 has 0"):
        splits.hold_out(labels, Holdout(4, balanced=True), num_classes=4)
    with pytest.raises(UserError, match="4 times 0; got 8"):
        splits.balanced_subset(labels, np.arange(30), 2, num_classes=4)


# The totals are the totals of CIFAR-100-LT, without held-out images.
@pytest.mark.parametrize(("factor", "total"), [(10, 19_573), (50, 12_608), (100, 10_847)])
def test_long_tails_have_the_sizes_that_others_use(factor, total):
    sizes = splits.long_tail_sizes(np.full(100, 500), factor)
    assert sizes.sum() == total
    assert (sizes.max(), sizes.min()) == (500, 500 // factor)


@pytest.mark.parametrize(("factor", "smallest"), [(10, 45), (50, 9), (100, 4)])
def test_long_tailed_cifar100(labels, factor, smallest):
    train, _ = splits.hold_out(labels, Holdout(5000, balanced=True), num_classes=100)
    tail = splits.long_tail(labels, train, factor, num_classes=100)
    counts = np.sort(np.bincount(labels[tail], minlength=100))[::-1]
    assert counts[1:-1].tolist() == [int(450 * factor ** (-rank / 99)) for rank in range(1, 99)]
    assert (counts[0], counts[-1]) == (450, smallest)
    assert (np.diff(tail) > 0).all()
    larger = splits.long_tail(labels, train, factor / 2, num_classes=100)
    assert set(tail.tolist()) < set(larger.tolist()) < set(train.tolist())
    assert len(splits.long_tail(labels, train, 1.0, num_classes=100)) == len(train)


def test_the_ranks_of_a_long_tail_are_those_of_every_run():
    # Pinned, as the splits are.
    assert splits.long_tail_sizes(np.full(6, 32), 32).tolist() == [32, 1, 2, 8, 4, 16]
