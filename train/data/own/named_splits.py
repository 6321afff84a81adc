"""A data set whose splits have names: the role of each split, and a list of all their images."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import BinaryIO

import numpy as np
from absl import logging
from typing_extensions import override

from train.configuration.datasets import NamedSplitFields
from train.data.own import class_names
from train.data.own.encoded_images import EncodedImages
from train.data.own.listing import Listing, Role, role_named
from train.foundation.errors import UserError


class SplitImages(EncodedImages):
    """The images of several splits, one split after another."""

    def __init__(self, splits: Mapping[str, EncodedImages]) -> None:
        self._splits = dict(splits)
        self._ends = np.cumsum([len(split) for split in splits.values()])

    def __len__(self) -> int:
        """The number of images of all splits."""
        return int(self._ends[-1])

    @override
    def name(self, index: int) -> str:
        split, _, position = self._place(index)
        return _name(split, position)

    @override
    def read(self, index: int) -> bytes:
        _, images, position = self._place(index)
        return images.read(position)

    @override
    def open(self, index: int) -> BinaryIO:
        _, images, position = self._place(index)
        return images.open(position)

    @override
    def mark(self, index: int) -> Hashable:
        _, images, position = self._place(index)
        return images.mark(position)

    def _place(self, index: int) -> tuple[str, EncodedImages, int]:
        """The split of an image by its name, its images, and the position of the image there."""
        number = int(np.searchsorted(self._ends, index, side="right"))
        split, images = list(self._splits.items())[number]
        return split, images, int(index) - int(self._ends[number]) + len(images)


def labels_of_roles(
    available: Collection[str],
    labels_of: Callable[[str], np.ndarray],
    fields: NamedSplitFields,
    where: str,
) -> dict[Role, tuple[str, np.ndarray]]:
    """The split of each role that has one, and its labels.

    Args:
        available: the splits of the data set.
        labels_of: the labels of a split, [n]; negative for an image without one.
        fields: `config.dataset`, which may name the split for a role.
        where: the data set in messages.

    Raises:
        UserError: a chosen split does not exist, has two roles or has images without labels, or
            there is none for training.
    """
    found: dict[Role, tuple[str, np.ndarray]] = {}
    chosen = (fields.train_split, fields.validation_split, fields.test_split)
    for role, choice in zip(Role, chosen, strict=True):
        field = f"config.dataset.{role.name.lower()}_split"
        if choice is not None and choice not in available:
            raise UserError(
                field=field, must_be=f"one of {', '.join(available)}, or None", got=choice
            )
        named = [split for split in available if role_named(split) is role]
        if choice is None and len(named) > 1:
            raise UserError(
                f"{where} has the splits {' and '.join(named)} for {role.name.lower()}: {field} "
                "must name one of them"
            )
        split = choice if choice is not None else next(iter(named), None)
        if split is None:
            if role is Role.TRAIN:
                raise UserError(
                    f"{where} has no split train: {field} must be one of {', '.join(available)}"
                )
            continue
        if split in {other for other, _ in found.values()}:
            raise UserError(
                field=field, must_be="a split of its own", but=f"{split!r} has another role too"
            )
        labels = labels_of(split)
        if (labels < 0).any():
            # So are the official test images of many data sets, which nobody may label.
            if choice is not None or role is Role.TRAIN:
                raise UserError(f"{field}: images of {split!r} have no labels")
            logging.warning("the split %s of %s has no labels, and is not used", split, where)
            continue
        found[role] = split, labels
    return found


def listed(
    labels: Mapping[Role, tuple[str, np.ndarray]],
    names_of_classes: Sequence[str],
    where: str,
    sizes: Mapping[str, np.ndarray] | None = None,
) -> Listing:
    """The images of all roles, one split after another.

    Args:
        labels: the split of each role that has one, and its labels.
        names_of_classes: the names of the classes.
        where: the data set in messages.
        sizes: the bytes of each image of each split; None for those that the digest has no use for.
    """
    numbers, merged = class_names.unified(
        np.concatenate([of_split for _, of_split in labels.values()]), names_of_classes, where
    )
    lengths = [len(of_split) for _, of_split in labels.values()]
    return Listing(
        paths=tuple(
            _name(split, position)
            for split, of_split in labels.values()
            for position in range(len(of_split))
        ),
        sizes=np.zeros(len(numbers), np.int64)
        if sizes is None
        else np.concatenate([sizes[split] for split, _ in labels.values()]),
        labels=numbers,
        roles=np.repeat(np.array(list(labels), np.int8), lengths),
        class_names=merged,
        given=frozenset(labels),
    )


def the_only(
    names: Sequence[str], usual: str, *, what: str, has: Collection[str], where: str, hint: str = ""
) -> str:
    """The name of the feature of a kind: the one with the usual name, or the only one.

    Args:
        names: the features of that kind.
        usual: the usual name.
        what: the kind in messages.
        has: the features of all kinds.
        where: the data set in messages.
        hint: what the user can do, at the end of the message.

    Raises:
        UserError: there is none, or there are several and none has the usual name.
    """
    if usual in names:
        return usual
    if not names:
        raise UserError(f"{where} has no {what}; it has {', '.join(has) or 'no features'}{hint}")
    if len(names) > 1:
        raise UserError(
            f"{where} must have one {what} in each example, or one named {usual!r}; it has "
            f"{', '.join(sorted(names))}{hint}"
        )
    return names[0]


def _name(split: str, position: int) -> str:
    return f"{split}[{position}]"
