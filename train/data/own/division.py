"""Divides examples into training, validation and test, as far as they are not divided yet."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from absl import logging

from train.configuration.datasets import DividedFields
from train.data.own import class_names, corrections, group_splits, held_out, unseen_classes
from train.data.own.listing import NO_SPLIT, Listing, Role
from train.foundation.errors import UserError
from train.foundation.spelling import spell


def check_fractions(fields: DividedFields) -> None:
    """Refuses fractions of `config.dataset` that leave nothing for training.

    Raises:
        UserError: they do.
    """
    validation, test = fields.validation_fraction, fields.test_fraction
    if validation + test >= 1:
        raise UserError(
            f"{spell('config.dataset.validation_fraction')} and "
            f"{spell('config.dataset.test_fraction')} must leave examples for training; got "
            f"{validation} and {test}"
        )


def divide(
    given: Listing,
    fields: DividedFields,
    *,
    where: str,
    example: str,
    names: Sequence[str] = (),
    root: Path | None = None,
) -> Listing:
    """Corrects labels, holds out missing splits, and checks that a classifier can be trained.

    They are held out of the examples without a split; if all have one, of the training examples.
    An example without a split gets the split of its group, if others of the group have one.

    Args:
        given: the examples as they are given.
        fields: `config.dataset`, which has the fractions that are held out.
        where: what they were found in, for messages.
        example: what messages call an example, "image" or "row".
        names: the names of rows of features, [n], if they have some.
        root: the folder that images are in.

    Raises:
        UserError: the corrections are not of these examples, there are fewer than two classes, a
            class has no training example, or there are no examples for validation or for the test.
    """
    given, left_out = corrections.apply(
        given, fields.corrections, names or given.paths, where=where, example=example, root=root
    )
    fractions = {
        Role.VALIDATION: fields.validation_fraction,
        Role.TEST: fields.test_fraction,
    }
    missing = {role: part for role, part in fractions.items() if role not in given.given}
    given = dataclasses.replace(given, roles=group_splits.completed(given))
    free = (given.roles == NO_SPLIT) & ~left_out
    if not (free | left_out).all() and free.any():
        held_out_of_them = " and ".join(role.name.lower() for role in missing)
        logging.warning(
            "%s: %d of %d %ss have no split; they are for training%s",
            where,
            free.sum(),
            len(free),
            example,
            held_out_of_them and f", and {held_out_of_them} {example}s are held out of them",
        )
    is_training = (given.roles == Role.TRAIN) & ~left_out
    free = free if free.any() else is_training
    roles = _held_out(given, missing, free)
    roles[left_out] = NO_SPLIT
    roles[_needed_for_training(given, roles, free)] = Role.TRAIN
    complete = dataclasses.replace(given, roles=roles)
    divided = unseen_classes.sort_out(complete, fields.unseen_classes, where, example)
    num_classes = len(divided.class_names)
    if num_classes < 2:
        only = f" ({divided.class_names[0]})" if num_classes else ""
        raise UserError(f"{where} must have at least two classes; it has {num_classes}{only}")
    class_names.warn_of_similar((*divided.class_names, *divided.unseen_names), where)
    for role in (Role.VALIDATION, Role.TEST):
        if role not in divided.roles[divided.labels < num_classes]:
            name = role.name.lower()
            if role in given.given:
                raise UserError(
                    f"{where} has no {example}s for {name} of a class with {example}s for "
                    "training; give it some"
                )
            reason = (
                ""
                if not divided.has_groups
                else ": only complete groups are held out, and each class keeps one, so that "
                f"{spell('config.dataset.group')} must make several groups of a class"
            )
            raise UserError(
                f"{where} has no {example}s for {name}{reason}; give it some, or a larger "
                f"{spell(f'config.dataset.{name}_fraction')}"
            )
    group_splits.warn(divided, where, example)
    return divided


def _held_out(given: Listing, missing: Mapping[Role, float], free: np.ndarray) -> np.ndarray:
    """The role of each example, int8 [n], after splits were held out of the free ones."""
    roles, indices = given.roles.copy(), np.flatnonzero(free)
    labels = given.labels[indices]
    fractions = {
        "validation": missing.get(Role.VALIDATION, 0.0),
        "test": missing.get(Role.TEST, 0.0),
    }
    keys = given.groups or given.paths
    roles[indices] = (
        held_out.by_keys(labels, [keys[index] for index in indices.tolist()], **fractions)
        if keys
        else held_out.by_numbers(labels, **fractions)
    )
    return roles


def _needed_for_training(given: Listing, roles: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The examples that were held out and have to be trained on, for each class to have one.

    Splits are held out of each class by the class that stands for an example. A class that stands
    for none of its examples may have lost all.
    """
    nobody = np.zeros(0, np.int64)
    if given.truths is None:
        return nobody
    without = given.occurrences(np.flatnonzero(roles == Role.TRAIN)) == 0
    candidates = np.flatnonzero(free & (roles != Role.TRAIN) & (roles != NO_SPLIT))
    truths = given.truths[candidates]
    rows, places = np.nonzero(without[truths.classes] & (truths.shares > 0))
    _, first = np.unique(truths.classes[rows, places], return_index=True)
    moved = candidates[np.unique(rows[first])]
    if given.groups is None or not moved.size:
        return moved
    # With all examples of their groups.
    groups = {given.groups[index] for index in moved.tolist()}
    return np.array([index for index in candidates.tolist() if given.groups[index] in groups])
