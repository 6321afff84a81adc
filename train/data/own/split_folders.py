"""Finds out whether the folders in a folder of images are splits or classes."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from absl import logging

from train.data import image_formats
from train.data.own.listing import Role, role_named
from train.foundation.errors import UserError
from train.foundation.messages import in_words
from train.foundation.spelling import spell

# What `find` returns for a folder of classes: all images are below the folder itself.
_CLASSES = {"": Role.TRAIN}
_ASKED_FOR = {Role.TRAIN: "training", Role.VALIDATION: "validation", Role.TEST: "the test"}


def find(root: Path, folders: Sequence[str]) -> dict[str, Role]:
    """The role of each folder of a split, by its name; the folder "" for one of classes.

    A class may have the name of a split, such as "test". Its images are then directly in its
    folder, and in the folder of a split they are not.

    Args:
        root: the folder.
        folders: the names of the folders in it.

    Raises:
        UserError: only some folders are splits, two of them have the same role, or none is for
            training.
    """
    roles = {name: role for name in folders if (role := role_named(name)) is not None}
    if not roles:
        return _CLASSES
    where = f"{spell('config.dataset.path')} {root}"
    if others := [name for name in folders if name not in roles]:
        splits = [name for name in roles if not _has_images(root / name)]
        if not splits:
            logging.warning(
                "%s: folders are classes, not splits, because images are directly in them: %s",
                where,
                in_words(list(roles), "folders"),
            )
            return _CLASSES
        raise UserError(
            f"{where} has folders of splits ({in_words(splits, 'folders')}) beside others "
            f"({in_words(others, 'folders')}): move the others elsewhere; or, if all are classes, "
            "put the images of each directly into its folder"
        )
    _check_complete(where, roles)
    return roles


def are_splits(folders: Collection[str]) -> bool:
    """Whether all of some folders have names of splits, and one of them is for training."""
    roles = [role_named(name) for name in folders]
    return Role.TRAIN in roles and None not in roles


def _check_complete(where: str, roles: dict[str, Role]) -> None:
    """Refuses splits of the same role, and splits without one for training."""
    for role, what in _ASKED_FOR.items():
        same = [name for name, of_name in roles.items() if of_name is role]
        if len(same) > 1:
            raise UserError(
                f"{where} must have one folder for each split; it has {', '.join(sorted(roles))}, "
                f"and {' and '.join(same)} are both for {what}: move the images into one of them"
            )
    if Role.TRAIN not in roles.values():
        raise UserError(
            f"{where} has folders of splits ({', '.join(roles)}), and none for training: add a "
            "folder train; a table can have classes of any name"
        )


def _has_images(folder: Path) -> bool:
    """Whether images are directly in a folder."""
    try:
        return any(image_formats.is_image(name) for name in os.listdir(folder))  # noqa: PTH208
    except OSError:
        return False
