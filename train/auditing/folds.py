"""Divides examples into folds, so that no group is in two of them."""

import numpy as np

from train.data import splits
from train.evaluation import example_groups


def assign(
    labels: np.ndarray, groups: np.ndarray | None, *, num_folds: int, seed: int
) -> np.ndarray:
    """The fold of each example, int32 [n]: each class has nearly equal parts in all folds.

    Args:
        labels: the classes, [n].
        groups: the names of the groups, [n]; "" for an example by itself, and None if all are. A
            group counts for the class of its first example.
        num_folds: the number of folds.
        seed: of the random order of the groups of a class.
    """
    first = group_of = np.arange(len(labels))
    if groups is not None:
        group_of = example_groups.numbered_by_name(groups)
        _, first = np.unique(group_of, return_index=True)
    class_of_group, sizes = labels[first], np.bincount(group_of)
    # The largest groups first: the folds of a class then differ by at most one group of its size.
    draws = np.random.default_rng(seed).random(len(first)) - sizes
    position = splits.position_in_class(class_of_group, draws)
    # A class starts in the fold in which the one before it ended, so that small classes are not all
    # in one fold.
    counts = np.bincount(class_of_group)
    begin = (np.cumsum(counts) - counts)[class_of_group]
    fold_of_group = (begin + position) % num_folds
    return fold_of_group[group_of].astype(np.int32)


def are_judged(labels: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Whether the other folds have examples of the class of each example, bool [n]."""
    counts = np.zeros((labels.max(initial=0) + 1, folds.max(initial=0) + 1), np.int64)
    np.add.at(counts, (labels, folds), 1)
    judged: np.ndarray = counts.sum(axis=1)[labels] > counts[labels, folds]
    return judged
