"""Groups and splits: examples of one group belong to one split, and usually to one class."""

from collections.abc import Iterator, Sequence

import numpy as np
from absl import logging

from train.data.own.listing import NO_SPLIT, Listing, Role
from train.foundation import messages


def completed(given: Listing) -> np.ndarray:
    """The split of each example, int8 [n]; one without a split has the first one of its group."""
    role_of: dict[str, int] = {}
    groups, roles = given.groups or (), given.roles.tolist()
    for group, role in zip(groups, roles, strict=False):
        if role != NO_SPLIT:
            role_of.setdefault(group, role)
    if not role_of:
        return given.roles
    followed = (role_of.get(group, NO_SPLIT) for group in groups)
    pairs = zip(roles, followed, strict=True)
    return np.array([other if role == NO_SPLIT else role for role, other in pairs], np.int8)


def warn(divided: Listing, where: str, example: str) -> None:
    """Warns of groups in several splits, which were given so, and of groups of several classes.

    Args:
        divided: the examples with all splits.
        where: what they were found in, for messages.
        example: what messages call an example, "image" or "row".
    """
    if divided.groups is None or not divided.has_groups:
        return
    used = np.flatnonzero(divided.roles != NO_SPLIT)
    number: dict[str, int] = {}
    numbers = np.array(
        [number.setdefault(divided.groups[index], len(number)) for index in used.tolist()], np.int64
    )
    names = list(number)
    in_splits = np.zeros((len(names), len(Role)), bool)
    in_splits[numbers, divided.roles[used]] = True
    leaking = np.flatnonzero(in_splits.sum(axis=1) > 1)
    if leaking.size:
        of_test = divided.roles[used] == Role.TEST
        in_training = of_test & in_splits[numbers, Role.TRAIN]
        logging.warning(
            "%s: %s of %s groups have %ss in several of the given splits, which makes accuracies "
            "too good: %s; %s of %s test %ss are of a group with training %ss",
            where,
            f"{leaking.size:,}",
            f"{len(names):,}",
            example,
            messages.first_names([*_shown(names, leaking)]),
            f"{in_training.sum():,}",
            f"{of_test.sum():,}",
            example,
            example,
        )
    # The first example of each group, and the groups with another label.
    labels = divided.labels[used]
    _, first = np.unique(numbers, return_index=True)
    differing = np.unique(numbers[labels != labels[first][numbers]])
    if differing.size:
        classes = (*divided.class_names, *divided.unseen_names)
        of_first = np.unique(labels[numbers == differing[0]]).tolist()
        named = messages.first_names([classes[label] for label in of_first])
        logging.warning(
            "%s: %s of %s groups have %ss of several classes, such as %s (%s); if these are "
            "different things, the names of the groups need the class",
            where,
            f"{differing.size:,}",
            f"{len(names):,}",
            example,
            next(_shown(names, differing)),
            named,
        )


def _shown(names: Sequence[str], numbers: np.ndarray) -> Iterator[str]:
    """Some groups in messages, without the word before their names."""
    return (names[number].partition(" ")[2] for number in numbers.tolist())
