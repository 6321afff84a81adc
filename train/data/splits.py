"""The examples held out for validation, and the examples of a smaller training set.

Both are functions of the labels and of constants: every run sees the same splits.
"""

from dataclasses import dataclass

import numpy as np

from train.foundation.errors import UserError

_HOLDOUT_SEED = 20260201
_SUBSET_SEED = 20260202


@dataclass(frozen=True)
class Holdout:
    """Validation examples held out of the prepared training split.

    Attributes:
        size: their number.
        balanced: whether they have as many examples of every class; otherwise they are the first of
            a permutation.
    """

    size: int
    balanced: bool


def hold_out(
    labels: np.ndarray, holdout: Holdout, *, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the training and of the validation examples, both in increasing order."""
    size = holdout.size
    if holdout.balanced:
        # Of all classes, so that a class without examples is noticed.
        counts = np.bincount(labels, minlength=num_classes)
        if size % num_classes:
            raise UserError(
                "config.dataset.validation_size must be a multiple of the "
                f"{num_classes} classes, of which it takes as many examples; got {size}"
            )
        each = size // num_classes
        if each >= counts.min():
            raise UserError(
                f"config.dataset.validation_size must leave a training example of every class: "
                f"{size} takes {each} of each, and class {counts.argmin()} has {counts.min()}"
            )
        is_held_out = _rank_in_class(labels, _HOLDOUT_SEED) < each
    else:
        if size >= len(labels):
            raise UserError(
                "config.dataset.validation_size must be less than the "
                f"{len(labels)} examples it is taken from; got {size}"
            )
        is_held_out = _rank(len(labels), _HOLDOUT_SEED) < size
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def subset(train: np.ndarray, size: int) -> np.ndarray:
    """`size` of the indices; a smaller subset is part of a larger one."""
    return train[_rank(len(train), _SUBSET_SEED) < size]


def balanced_subset(
    labels: np.ndarray, train: np.ndarray, each: int, *, num_classes: int
) -> np.ndarray:
    """`each` indices of every class; a smaller subset is part of a larger one."""
    counts = np.bincount(labels[train], minlength=num_classes)
    if each > counts.min():
        raise UserError(
            "config.dataset.train_size must be at most the classes times the training examples of "
            f"the smallest class, {num_classes} times {counts.min()}; got {each * num_classes}"
        )
    return train[_rank_in_class(labels[train], _SUBSET_SEED) < each]


def _rank(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(size)


def _rank_in_class(labels: np.ndarray, seed: int) -> np.ndarray:
    """The rank of each example among those of its class, in a random order of all examples."""
    order = np.lexsort((_rank(len(labels), seed), labels))
    counts = np.bincount(labels)
    starts = np.cumsum(counts) - counts
    rank = np.empty(len(labels), np.int64)
    rank[order] = np.arange(len(labels)) - starts[labels[order]]
    return rank
