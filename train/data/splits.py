"""The examples held out for validation, and the examples of a smaller or long-tailed training set.

All are functions of the labels and of constants: every run sees the same splits.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from train.foundation.errors import UserError

_HOLDOUT_SEED = 20260201
_SUBSET_SEED = 20260202
_LONG_TAIL_SEED = 20261124


def shuffled(split: str, keys: np.ndarray) -> np.ndarray:
    """The keys of examples [n] in an order that the name of the split and the keys determine.

    The published results of digits and synthetic species have this order, in which
    tensorflow-datasets writes files.
    """
    hashes = [hashlib.md5(f"{split}{key}".encode()).digest() for key in keys.tolist()]
    return keys[sorted(range(len(keys)), key=hashes.__getitem__)]


@dataclass(frozen=True)
class Holdout:
    """Validation examples held out of the prepared training split.

    Attributes:
        size: their number.
        balanced: whether they have equally many examples of every class; otherwise they are the
            first of a permutation.
    """

    size: int
    balanced: bool


def hold_out(
    labels: np.ndarray, holdout: Holdout, *, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the training and of the validation examples, both in increasing order."""
    size = holdout.size
    if holdout.balanced:
        # Over all classes, so that a class without examples is noticed.
        counts = np.bincount(labels, minlength=num_classes)
        if size % num_classes:
            raise UserError(
                field="config.dataset.validation_size",
                must_be=(
                    f"a multiple of the {num_classes} classes, from which it takes equally many "
                    "examples"
                ),
                got=size,
            )
        each = size // num_classes
        if each >= counts.min():
            raise UserError(
                f"config.dataset.validation_size must leave a training example of every class: "
                f"{size} takes {each} of each, and class {counts.argmin()} has {counts.min()}"
            )
        is_held_out = position_in_class(labels, _rank(len(labels), _HOLDOUT_SEED)) < each
    else:
        if size >= len(labels):
            raise UserError(
                field="config.dataset.validation_size",
                must_be=f"less than the {len(labels)} examples it is taken from",
                got=size,
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
            field="config.dataset.train_size",
            must_be=(
                "at most the classes times the training examples of the smallest class, "
                f"{num_classes} times {counts.min()}"
            ),
            got=each * num_classes,
        )
    return train[position_in_class(labels[train], _rank(len(train), _SUBSET_SEED)) < each]


def long_tail(
    labels: np.ndarray, train: np.ndarray, factor: float, *, num_classes: int
) -> np.ndarray:
    """The indices of a long tail; the tail of a larger factor is part of a smaller factor's."""
    sizes = long_tail_sizes(np.bincount(labels[train], minlength=num_classes), factor)
    position = position_in_class(labels[train], _rank(len(train), _SUBSET_SEED))
    return train[position < sizes[labels[train]]]


def long_tail_sizes(counts: np.ndarray, factor: float) -> np.ndarray:
    """The number of training examples that each class keeps, int64 [L].

    Class c keeps n / factor**(rank_c / (L - 1)) examples, rounded down, and at most those that it
    has. n is the number of the largest class. The ranks from 0 to L - 1 are a fixed random
    permutation of the classes. The sizes equal long-tailed CIFAR's (Cui et al., 2019).

    Args:
        counts: the training examples of each class, [L].
        factor: the ratio of the largest class to the smallest one, at least 1.

    Raises:
        UserError: a class would lose all its examples.
    """
    largest = counts.max()
    if factor > largest:
        raise UserError(
            field="config.dataset.imbalance_factor",
            must_be=f"at most {largest}, the training examples of the largest class, so that each "
            "class keeps one",
            but=f"got {factor:g}",
        )
    rank = _rank(len(counts), _LONG_TAIL_SEED)
    kept = largest / factor ** (rank / (len(counts) - 1))
    # Raised a little, because 32 / 32**0.8 is 2, but slightly less in floating point.
    return np.minimum((kept * (1 + 1e-9)).astype(np.int64), counts)


def position_in_class(labels: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """The number of examples of the same class with a smaller draw, int64 [n].

    Examples with the same draw are counted in their order.
    """
    order = np.lexsort((draws, labels))
    counts = np.bincount(labels)
    position = np.empty(len(labels), np.int64)
    position[order] = np.arange(len(labels)) - (np.cumsum(counts) - counts)[labels[order]]
    return position


def _rank(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(size)
