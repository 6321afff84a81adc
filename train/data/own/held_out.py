"""Which examples are held out of those for training, for splits that are not given."""

import hashlib
import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from train.data import splits
from train.data.own.listing import Role
from train.foundation import names

# A constant of the data, not of the run: every run sees the same splits.
_SPLIT_SALT = b"topk_jax own images 1"
_ROW_SEED = 20261122


def by_keys(
    labels: np.ndarray,
    keys: Sequence[str],
    *,
    validation: float,
    test: float,
) -> np.ndarray:
    """The role of each image: a fraction of every class is held out for validation, one for test.

    Which files are held out is a function of their keys, so that a new file moves few others. Files
    of one key stay together. Each class keeps at least one key for training. A key with files of
    several classes counts for the fraction of the class of its first file.

    Args:
        labels: the class of each file, [n].
        keys: what distinguishes the files, or the group that each belongs to, [n].
        validation: the fraction of each class for validation.
        test: the fraction of each class for the test.

    Returns:
        int8 [n].
    """
    roles = np.full(len(labels), Role.TRAIN, np.int8)
    order = {key: _rank(key) for key in set(keys)}
    members: dict[str, list[int]] = {}
    for index, key in enumerate(keys):
        members.setdefault(key, []).append(index)
    by_class: dict[int, list[str]] = {}
    class_of = labels.tolist()
    for key, indices in members.items():
        by_class.setdefault(class_of[indices[0]], []).append(key)
    # Classes without a key of their own, and for each key the ones of these that it has. The last
    # key of each other class is left for training below.
    guests = set(class_of) - by_class.keys()
    guests_of = {
        key: guests.intersection([class_of[index] for index in indices])
        for key, indices in members.items()
        if guests
    }
    keys_for_training = Counter(itertools.chain.from_iterable(guests_of.values()))
    for keys_of_class in by_class.values():
        keys_of_class.sort(key=order.__getitem__)
        total = sum(len(members[key]) for key in keys_of_class)
        # Rounded to the nearest, and halves up.
        wanted = {
            Role.TEST: int(test * total + 0.5),
            Role.VALIDATION: int(validation * total + 0.5),
        }
        left = keys_of_class[:-1]
        for role, size in wanted.items():
            taken, rest = 0, []
            for key in left:
                # A group that is too large is passed over: smaller ones may come after it. So is
                # one that has all training files of another class.
                inside = guests_of.get(key, set())
                fits = taken + len(members[key]) <= size
                if fits and all(keys_for_training[guest] > 1 for guest in inside):
                    roles[members[key]] = role
                    taken += len(members[key])
                    keys_for_training.subtract(inside)
                else:
                    rest.append(key)
            left = rest
    return roles


def by_numbers(labels: np.ndarray, *, validation: float, test: float) -> np.ndarray:
    """The role of each of many rows: like `by_keys`, but rows are distinguished by their numbers.

    Rows that are added at the end move few others.

    Args:
        labels: the class of each row, [n].
        validation: the fraction of each class for validation.
        test: the fraction of each class for the test.

    Returns:
        int8 [n].
    """
    # The first numbers of a generator are the same however many are drawn.
    draws = np.random.default_rng(_ROW_SEED).random(len(labels))
    position = splits.position_in_class(labels, draws)
    counts = np.bincount(labels)
    # One row of each class is left for training.
    available = np.maximum(counts - 1, 0)
    tested = np.minimum((test * counts + 0.5).astype(np.int64), available)
    validated = np.minimum((validation * counts + 0.5).astype(np.int64), available - tested)
    roles = np.full(len(labels), Role.TRAIN, np.int8)
    roles[position < (tested + validated)[labels]] = Role.VALIDATION
    roles[position < tested[labels]] = Role.TEST
    return roles


def _rank(key: str) -> bytes:
    same = names.same_form(key)
    return hashlib.sha256(_SPLIT_SALT + same.encode(errors="surrogateescape")).digest()
