"""Divides examples into training, validation and test, as far as they are not divided yet.

Splits that are missing are held out: a fraction of each class, of whole groups, by a hash of the
names. So every run sees the same splits, and a new example moves few others.
"""

import dataclasses
import hashlib
import itertools
from collections import Counter

import numpy as np
from absl import logging

from train.data.examples import Examples, Split
from train.foundation import names
from train.foundation.console import first_names, in_words
from train.foundation.errors import UserError

# Constants of the data, not of a run: with others, other examples would be held out.
_SALT = b"topk_jax own images 1"
_SEED = 20261122
REFUSE, LEAVE_OUT, KEEP = "refuse", "leave_out", "keep"


def check_fractions(validation: float, test: float) -> None:
    """Raises `UserError` for fractions that leave nothing for training."""
    if validation + test >= 1:
        raise UserError(
            field="config.dataset.validation_fraction",
            must_be="less than 1 with config.dataset.test_fraction",
            but=f"got {validation} and {test}",
        )


def divide(
    given: Examples, *, validation: float, test: float, unseen: str = REFUSE, example: str = "image"
) -> Examples:
    """The examples with all splits, and with the classes that have examples for training.

    Splits are held out of the examples without a split, or, if all have one, of those for training.
    An example without a split follows its group. Each class keeps examples for training.

    Args:
        given: the examples.
        validation: the fraction of each class that is held out for validation, unless it is given.
        test: the fraction for the test.
        unseen: what becomes of classes without examples for training: `REFUSE`, `LEAVE_OUT` or
            `KEEP`.
        example: what messages call an example.

    Raises:
        UserError: a split has no examples, or there are not two classes to train.
    """
    keys, of = _groups(given)
    splits = _followed(given.splits, of)
    fractions = {Split.TEST: test, Split.VALIDATION: validation}
    missing = {split: part for split, part in fractions.items() if split not in given.splits}
    free = splits == Split.NONE
    if free.any() and not free.all():
        told = f"{free.sum():,} of {len(free):,} {example}s have no split"
        others = " or ".join(["training", *(split.word for split in missing)])
        logging.warning("%s: %s; they are for %s", given.where, told, others)
    if not free.any():
        free = splits == Split.TRAIN
    splits[free] = _hold_out(given.labels[free], of[free], _draws(keys, of[free]), missing)
    divided = _keep_for_training(dataclasses.replace(given, splits=splits), of, free)
    divided = _without_unseen(divided, unseen, example)
    _check(divided, example)
    if given.groups is not None:
        _warn_of_groups(divided, example)
    return divided


def _groups(given: Examples) -> tuple[list[str] | None, np.ndarray]:
    """What distinguishes the groups, None if it is only the order; and the group of each example.

    An example without a group is one of its own.
    """
    if given.groups is None and given.names is None:
        return None, np.arange(len(given))
    called = (names.same_form(given.name(index)) for index in range(len(given)))
    if given.groups is not None:
        pairs = zip(given.groups.tolist(), called, strict=True)
        called = (f"group {group}" if group else f"path {name}" for group, name in pairs)
    number: dict[str, int] = {}
    of = np.array([number.setdefault(key, len(number)) for key in called], np.int64)
    return [*number], of


def _followed(splits: np.ndarray, of: np.ndarray) -> np.ndarray:
    """The splits [n]; an example without one has the first one of its group."""
    of_group = np.full(len(of), Split.NONE, np.int8)
    given = np.flatnonzero(splits != Split.NONE)
    groups, first = np.unique(of[given], return_index=True)
    of_group[groups] = splits[given[first]]
    return np.where(splits == Split.NONE, of_group[of], splits)


def _draws(keys: list[str] | None, of: np.ndarray) -> np.ndarray:
    """A number for each example, by which its group is held out early or late."""
    if keys is None:
        # The first numbers of a generator are the same however many are drawn.
        return np.random.default_rng(_SEED).random(len(of))
    hashes = (hashlib.sha256(_SALT + key.encode(errors="surrogateescape")) for key in keys)
    return np.frombuffer(b"".join(one.digest()[:8] for one in hashes), ">u8")[of]


def _hold_out(
    labels: np.ndarray, of: np.ndarray, draws: np.ndarray, missing: dict[Split, float]
) -> np.ndarray:
    """The split of each example, int8 [n], with groups whole.

    A group with examples of several classes counts for the class of its first example.
    """
    _, first, of, sizes = np.unique(of, return_index=True, return_inverse=True, return_counts=True)
    splits = np.full(len(first), Split.TRAIN, np.int8)
    order = np.lexsort((draws[first], labels[first]))
    ends = np.cumsum(np.bincount(labels[first]))
    for own in np.split(order, ends[:-1]):
        # One group of each class is left for training.
        total, left = sizes[own].sum(), own[:-1].tolist()
        for split, part in missing.items():
            # Rounded to the nearest, and halves up.
            size, rest = int(part * total + 0.5), []
            for group in left:
                # A group that is too large is passed over: smaller ones may come after it.
                if sizes[group] <= size:
                    splits[group] = split
                    size -= sizes[group]
                else:
                    rest.append(group)
            left = rest
    return splits[of]


def _keep_for_training(divided: Examples, of: np.ndarray, free: np.ndarray) -> Examples:
    """The examples with a group for training of each class that the free ones have.

    A class may have no group that counts for it, or only occur beside other labels of its examples.
    """
    lost = divided.of_split(Split.TRAIN).occurrences() == 0
    places = np.flatnonzero(free & (divided.splits != Split.TRAIN))
    index, found = divided.take(places).entries()
    _, first = np.unique(found[lost[found]], return_index=True)
    groups = of[places[index[lost[found]][first]]]
    splits = np.where(free & np.isin(of, groups), np.int8(Split.TRAIN), divided.splits)
    return dataclasses.replace(divided, splits=splits)


def _without_unseen(divided: Examples, unseen: str, example: str) -> Examples:
    """The examples without the classes that have none for training."""
    trained = divided.of_split(Split.TRAIN).occurrences() > 0
    if trained.all() or unseen == KEEP:
        return divided
    without = [divided.class_names[label] for label in np.flatnonzero(~trained).tolist()]
    of, labels = divided.entries()
    of_unseen = np.isin(np.arange(len(divided)), of[~trained[labels]])
    found = f"{divided.where} has no training {example} of {in_words(without, 'classes')}"
    if unseen == REFUSE:
        raise UserError(
            f"{found}; config.dataset.unseen_classes={LEAVE_OUT} leaves out their "
            f"{of_unseen.sum():,} {example}s"
        )
    logging.warning("%s; all %s %ss are left out", found, f"{of_unseen.sum():,}", example)
    number = np.cumsum(trained) - 1
    class_names = tuple(itertools.compress(divided.class_names, trained))
    return divided.take(~of_unseen).renumbered(number, class_names)


def _check(divided: Examples, example: str) -> None:
    """Refuses examples that no classifier can be trained, chosen and tested with."""
    where, class_names = divided.where, divided.class_names
    if len(class_names) < 2:
        only = f" ({class_names[0]})" if class_names else ""
        raise UserError(f"{where} must have at least two classes; it has {len(class_names)}{only}")
    for split in (Split.VALIDATION, Split.TEST):
        if split not in divided.splits:
            fraction = f"config.dataset.{split.word}_fraction"
            remedy = f"more of them, or a larger {fraction}, are needed"
            kept = example
            if divided.groups is not None:
                kept, remedy = "group", "more groups in a class are needed; they are never divided"
            raise UserError(
                f"{where} has no {example}s for {split.word}: each class keeps one {kept} for "
                f"training; {remedy}"
            )


def _warn_of_groups(divided: Examples, example: str) -> None:
    """Warns of groups that the given splits divide, and of groups of several classes."""
    assert divided.groups is not None
    used = divided.take(divided.groups != "")
    assert used.groups is not None
    for values, what in (
        (used.splits, "in several of the given splits, which makes accuracies too good"),
        (
            used.labels,
            "of several classes: either labels are wrong, or classes share names of groups",
        ),
    ):
        pairs = {*zip(used.groups.tolist(), values.tolist(), strict=True)}
        number = Counter(group for group, _ in pairs)
        if several := sorted(group for group, count in number.items() if count > 1):
            counts = f"{len(several):,} of {len(number):,} groups have {example}s"
            named = first_names(several)
            logging.warning("%s: %s %s: %s", divided.where, counts, what, named)
