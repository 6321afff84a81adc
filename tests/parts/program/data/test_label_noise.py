"""Label noise: how many labels change, to what, and on what that depends."""

import numpy as np
import pytest

from train.data import label_noise
from train.data.cifar100 import SUPERCLASS_NAMES, SUPERCLASSES
from train.data.label_noise import LabelNoise

# The coarse label of each fine one, as the data set's files pair them.
COARSE_LABELS = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7),
    *(6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10),
    *(16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16),
    *(12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
)
BLOCKS = label_noise.blocks(100)
ACROSS = label_noise.across(100)


@pytest.fixture(scope="module")
def labels():
    return np.random.default_rng(0).integers(0, 100, 45_000).astype(np.int32)


def test_superclasses_are_those_of_the_files():
    assert SUPERCLASSES == COARSE_LABELS
    assert len({name for names in SUPERCLASS_NAMES.values() for name in names}) == 100


def test_blocks_are_five_consecutive_classes_and_never_a_superclass():
    assert np.array_equal(BLOCKS, np.arange(20).repeat(5))
    for start in range(0, 100, 5):
        assert len(set(SUPERCLASSES[start : start + 5])) > 1


def test_groups_across_are_five_classes_of_any_place():
    assert np.bincount(ACROSS).tolist() == [5] * 20
    # The groups of all runs and machines follow from these numbers.
    assert np.flatnonzero(np.equal(ACROSS, 0)).tolist() == [12, 25, 40, 76, 78]
    assert np.flatnonzero(np.equal(ACROSS, 19)).tolist() == [0, 51, 68, 71, 74]
    # 4 of the 99 other classes share the superclass, so by chance 8 of the 200 pairs in groups do.
    for groups in (SUPERCLASSES, BLOCKS):
        same = np.equal.outer(groups, groups) & np.equal.outer(ACROSS, ACROSS)
        assert (same.sum() - 100) / 2 <= 16


def test_the_last_group_has_what_is_left():
    for kind, grouping in label_noise.GROUPINGS.items():
        assert np.bincount(grouping(12)).tolist() == ([12] if kind == "uniform" else [5, 5, 2])
        assert grouping(1) == (0,)


@pytest.mark.parametrize(
    "groups", [SUPERCLASSES, BLOCKS, ACROSS], ids=["superclass", "blocks", "across"]
)
@pytest.mark.parametrize("probability", [0.0, 0.1, 0.4, 1.0])
def test_how_many_labels_change_and_to_what(labels, groups, probability):
    noisy = label_noise.apply(LabelNoise(probability, groups), labels, seed=0)
    assert noisy.dtype == np.int32
    np.testing.assert_array_equal(np.array(groups)[noisy], np.array(groups)[labels])
    # A draw gives the label back once in five. Five standard errors of a binomial share.
    expected = 0.8 * probability
    error = np.sqrt(expected * (1 - expected) / len(labels))
    assert abs((noisy != labels).mean() - expected) <= 5 * error


@pytest.mark.parametrize("probability", [0.3, 1.0])
def test_every_member_of_a_group_is_as_likely(probability):
    # Classes 0 and 2 and classes 1, 3 and 4: groups need be neither equal nor consecutive.
    labels = np.zeros(30_000, np.int32) + np.arange(2, dtype=np.int32).repeat(15_000)
    noisy = label_noise.apply(LabelNoise(probability, (7, 3, 7, 3, 3)), labels, seed=1)
    counts = np.bincount(noisy, minlength=5) / 15_000
    drawn = np.array([1 / 2, 1 / 3, 1 / 2, 1 / 3, 1 / 3])
    expected = probability * drawn + (1 - probability) * np.array([1, 1, 0, 0, 0])
    # Five standard errors of a share of 15,000.
    assert (abs(counts - expected) < 5 * np.sqrt(expected * (1 - expected) / 15_000)).all()


def test_the_noise_of_an_example_depends_on_seed_and_place_alone(labels):
    noise = LabelNoise(0.4, SUPERCLASSES)
    noisy = label_noise.apply(noise, labels, seed=0)
    np.testing.assert_array_equal(label_noise.apply(noise, labels[:100], seed=0), noisy[:100])
    others = labels.copy()
    others[1::2] = 0
    np.testing.assert_array_equal(label_noise.apply(noise, others, seed=0)[::2], noisy[::2])
    assert (label_noise.apply(noise, labels, seed=1) != noisy).any()
    # What changes at a lower probability changes at a higher one, and to the same.
    lower = label_noise.apply(LabelNoise(0.1, SUPERCLASSES), labels, seed=0)
    changed = lower != labels
    np.testing.assert_array_equal(lower[changed], noisy[changed])
