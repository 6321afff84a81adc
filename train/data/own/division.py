"""Divides examples into training, validation and test, as far as they are not divided yet."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from absl import logging

from train.configuration.datasets import DividedFields
from train.data.own import class_names, listing, unseen_classes
from train.data.own.listing import NO_SPLIT, GivenImages, Listing, Role
from train.data.own.unseen_classes import Divided
from train.foundation.errors import UserError
from train.foundation.spelling import spell


@dataclass(frozen=True)
class Division:
    """How examples are divided.

    Attributes:
        validation: the fraction of each class that is held out for validation if no split is given.
        test: the fraction of each class that is held out for the test if no split is given.
        unseen: what becomes of classes without training examples; None to keep them. See
            `unseen_classes`.
    """

    validation: float
    test: float
    unseen: str | None = unseen_classes.REFUSE

    @classmethod
    def of(cls, fields: DividedFields) -> "Division":
        """What `config.dataset` says."""
        return cls(fields.validation_fraction, fields.test_fraction, fields.unseen_classes)

    def missing(self, given: Container[int]) -> dict[Role, float]:
        """The fractions that are held out for the splits that are not among the given ones."""
        fractions = {Role.VALIDATION: self.validation, Role.TEST: self.test}
        return {role: fraction for role, fraction in fractions.items() if role not in given}


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


def split(images: GivenImages, where: str, division: Division) -> Listing:
    """The images with all splits.

    Args:
        images: as they are given.
        where: what they were found in, for messages.
        division: how they are divided.

    Raises:
        UserError: no classifier can be trained with them; see `divide`.
    """
    divided = divide(
        Divided(images.labels, images.roles, images.class_names),
        images.keys,
        division,
        given=images.given,
        where=where,
        example="image",
    )
    return Listing(
        images.root,
        images.paths,
        divided.labels,
        divided.roles,
        divided.class_names,
        divided.unseen_names,
        images.given,
    )


def divide(
    examples: Divided,
    keys: Sequence[str] | None,
    division: Division,
    *,
    given: Container[int],
    where: str,
    example: str,
) -> Divided:
    """Holds out the splits that are missing, and checks that a classifier can be trained.

    They are held out of the examples without a split; if all have one, of the training examples.

    Args:
        examples: as they are given.
        keys: what the examples are told apart by, as in `listing.hold_out`; None for their numbers,
            as in `listing.hold_out_rows`.
        division: how the examples are divided.
        given: the roles of the splits that are given, with or without examples.
        where: what the examples were found in, for messages.
        example: what messages call an example, "image" or "row".

    Raises:
        UserError: there are fewer than two classes, a class has no training example, or there are
            no examples for validation or for the test.
    """
    missing = division.missing(given)
    free = examples.roles == NO_SPLIT
    if not free.all() and free.any():
        held_out = " and ".join(role.name.lower() for role in missing)
        logging.warning(
            "%s: %d of %d %ss have no split; they are for training%s",
            where,
            free.sum(),
            len(free),
            example,
            held_out and f", and {held_out} {example}s are held out of them",
        )
    roles = _held_out(examples, keys, missing, free if free.any() else examples.roles == Role.TRAIN)
    complete = Divided(examples.labels, roles, examples.class_names)
    divided = unseen_classes.sort_out(complete, division.unseen, where, example)
    num_classes = len(divided.class_names)
    if num_classes < 2:
        only = f" ({divided.class_names[0]})" if num_classes else ""
        raise UserError(f"{where} must have at least two classes; it has {num_classes}{only}")
    class_names.warn_of_similar((*divided.class_names, *divided.unseen_names), where)
    for role in (Role.VALIDATION, Role.TEST):
        if role not in divided.roles[divided.labels < num_classes]:
            name = role.name.lower()
            raise UserError(
                f"{where} has no {example}s for {name}; give it some, or a larger "
                f"{spell(f'config.dataset.{name}_fraction')}"
            )
    return divided


def _held_out(
    examples: Divided, keys: Sequence[str] | None, missing: Mapping[Role, float], free: np.ndarray
) -> np.ndarray:
    """The role of each example, where splits are held out of some of them, int8 [n]."""
    roles, indices = examples.roles.copy(), np.flatnonzero(free)
    labels = examples.labels[indices]
    fractions = {
        "validation": missing.get(Role.VALIDATION, 0.0),
        "test": missing.get(Role.TEST, 0.0),
    }
    roles[indices] = (
        listing.hold_out_rows(labels, **fractions)
        if keys is None
        else listing.hold_out(labels, [keys[index] for index in indices.tolist()], **fractions)
    )
    return roles
