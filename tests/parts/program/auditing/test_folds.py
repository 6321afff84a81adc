"""Folds: no group is in two, and each class has nearly equal parts in all."""

import numpy as np

from train.auditing import folds


def test_each_class_and_all_examples_are_shared_out_evenly(rng):
    labels = rng.permutation(np.repeat(np.arange(30), rng.integers(1, 40, size=30)))
    found = folds.assign(labels, None, num_folds=5, seed=0)
    for label in range(30):
        sizes = np.bincount(found[labels == label], minlength=5)
        assert np.ptp(sizes) <= 1
    assert np.ptp(np.bincount(found, minlength=5)) <= 1
    assert (found == folds.assign(labels, None, num_folds=5, seed=0)).all()
    assert (found != folds.assign(labels, None, num_folds=5, seed=1)).any()


def test_a_group_is_in_one_fold(rng):
    sizes = rng.integers(1, 6, size=200)
    groups = np.repeat(np.arange(200), sizes)
    labels = np.repeat(rng.integers(4, size=200), sizes)
    # A group with two labels counts for the first.
    labels[np.flatnonzero(groups == 3)[1:]] = 1
    order = rng.permutation(len(groups))
    order[np.flatnonzero(groups[order] == 3)] = np.flatnonzero(groups == 3)
    names = np.array([f"group {group}" for group in groups], object)
    found = folds.assign(labels[order], names[order], num_folds=5, seed=0)
    for group in range(200):
        assert len(set(found[groups[order] == group])) == 1
    for label in range(4):
        # Groups have at most 5 examples.
        assert np.ptp(np.bincount(found[labels[order] == label], minlength=5)) <= 5 + 4


def test_an_example_is_judged_if_other_folds_have_its_class():
    labels, in_folds = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 0])
    assert folds.are_judged(labels, in_folds).tolist() == [True, True, False, False, False]
