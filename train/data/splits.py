"""Which examples are held out, or train a run, and the noise in their labels.

All are functions of the labels, of the places of the examples in their source, and of constants. So
every run sees the same splits. Only the noise depends on the run's seed.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from train.configuration import DatasetFields
from train.data import streams
from train.data.dataset import Dataset, DatasetSpec
from train.foundation.errors import UserError

# Constants of the program, not of a run.
_HOLDOUT_SEED = 20260201
_SUBSET_SEED = 20260202
_LONG_TAIL_SEED = 20261124
# The classes of a group of label noise, for the groups of consecutive classes.
_BLOCK = 5


class Holdout(NamedTuple):
    """Validation examples held out of the training split: their number, and how they are chosen."""

    size: int
    # As many of every class, or else the first of a permutation.
    balanced: bool


def load(spec: DatasetSpec, fields: DatasetFields, *, seed: int) -> Dataset:
    """The data set with the training examples that a run takes, and the labels that it gives them.

    Args:
        spec: the data set.
        fields: `config.dataset`.
        seed: the run's seed.

    Raises:
        UserError: the data set cannot be opened, a class would lose all its examples, or the noise
            needs superclasses.
    """
    dataset = spec.load(fields.data_dir)
    train = dataset.train
    if fields.train_per_class is not None or fields.imbalance_factor != 1:
        counts = np.bincount(train.labels, minlength=dataset.num_classes)
        most = counts if fields.train_per_class is None else counts.clip(max=fields.train_per_class)
        sizes = long_tail_sizes(most, fields.imbalance_factor)
        draws = np.random.default_rng(_SUBSET_SEED).permutation(len(train))
        # A smaller number, or a longer tail, takes a part of what a larger number takes.
        train = train.take(position_in_class(train.labels, draws) < sizes[train.labels])
    if fields.label_noise > 0:
        groups = _groups(fields, dataset)
        labels = noisy(train.labels, train.places, fields.label_noise, groups, seed=seed)
        train = dataclasses.replace(train, labels=labels)
    return dataclasses.replace(dataset, train=train)


def hold_out(
    labels: np.ndarray, holdout: Holdout, *, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the training and of the validation examples, both in increasing order."""
    draws = np.random.default_rng(_HOLDOUT_SEED).permutation(len(labels))
    if holdout.balanced:
        # Over all classes, so that a class without examples is noticed.
        smallest = np.bincount(labels, minlength=num_classes).min()
        each, rest = divmod(holdout.size, num_classes)
        is_possible = rest == 0 and each < smallest
        allowed = (
            f"a multiple of the {num_classes} classes that takes fewer examples of each than the "
            f"{smallest} of the smallest"
        )
        is_held_out = position_in_class(labels, draws) < each
    else:
        is_possible = holdout.size < len(labels)
        allowed = f"less than the {len(labels)} examples it is taken from"
        is_held_out = draws < holdout.size
    if not is_possible:
        raise UserError(field="config.dataset.validation_size", must_be=allowed, got=holdout.size)
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def shuffled(split: str, keys: np.ndarray) -> np.ndarray:
    """The keys of examples [n] in an order that the name of the split and the keys determine.

    The published results of digits and synthetic species have this order, in which
    tensorflow-datasets writes files.
    """
    hashes = [hashlib.md5(f"{split}{key}".encode()).digest() for key in keys.tolist()]
    return keys[sorted(range(len(keys)), key=hashes.__getitem__)]


def position_in_class(labels: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """The number of examples of the same class with a smaller draw, int64 [n].

    Examples with the same draw are counted in their order.
    """
    order = np.lexsort((draws, labels))
    counts = np.bincount(labels)
    position = np.empty(len(labels), np.int64)
    position[order] = np.arange(len(labels)) - (np.cumsum(counts) - counts)[labels[order]]
    return position


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
            must_be=f"at most {largest}, the training examples of the largest class",
            got=factor,
        )
    rank = np.random.default_rng(_LONG_TAIL_SEED).permutation(len(counts))
    kept = largest / factor ** (rank / (len(counts) - 1))
    # Raised a little, because 32 / 32**0.8 is 2, but slightly less in floating point.
    return np.minimum((kept * (1 + 1e-9)).astype(np.int64), counts)


def noisy(
    labels: np.ndarray, places: np.ndarray, probability: float, groups: Sequence[int], *, seed: int
) -> np.ndarray:
    """The labels [n], each drawn again from the group of its class with some probability.

    A new label depends only on the old one, the seed and the place, and can be the old one: in
    groups of five, a share of 0.8 of the draws changes it. The labels that are drawn with a lower
    probability are also drawn with a higher one.

    Args:
        labels: the labels, [n].
        places: the places of the examples in their source, [n].
        probability: of drawing a label again.
        groups: the group of each class, [L].
        seed: the run's seed.
    """
    # A double takes one draw, so that the draws of an example do not depend on later examples. A
    # bounded integer would take as many draws as it needs.
    draws = streams.generator(seed, streams.LABEL_NOISE).random((places.max(initial=-1) + 1, 2))
    draws = draws[places]
    _, of_class, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    # The classes, group after group.
    classes = np.argsort(of_class, kind="stable")
    starts = np.cumsum(sizes) - sizes
    own = of_class[labels]
    drawn = classes[starts[own] + (draws[:, 1] * sizes[own]).astype(np.int64)]
    return np.where(draws[:, 0] < probability, drawn.astype(labels.dtype), labels)


def _groups(fields: DatasetFields, dataset: Dataset) -> Sequence[int]:
    """The group of each class, by `config.dataset.label_noise_kind`."""
    kind, number = fields.label_noise_kind, dataset.num_classes
    if kind == "uniform":
        return [0] * number
    if kind == "blocks":
        # The published results on CIFAR-100 have these groups. None of them is a superclass there.
        return [label // _BLOCK for label in range(number)]
    tree = dataset.tree_named(fields.taxonomy)
    if tree is None:
        raise UserError(
            field="config.dataset.label_noise_kind",
            must_be="blocks or uniform, as nothing is above the classes",
            got=kind,
        )
    above = [path[:-1] for path in tree.paths]
    number_of = {one: place for place, one in enumerate(dict.fromkeys(above))}
    return [number_of[one] for one in above]
