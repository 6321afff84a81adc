"""Finds the images of a folder that has a folder for each class."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from train.data import image_formats
from train.data.own.listing import ROLE_NAMES, GivenImages, Role
from train.foundation.errors import UserError


def find(root: Path, *, nested: bool) -> GivenImages:
    """The images below a folder, sorted by path.

    The folder has a folder for each class, or the folders `train`, `val` (or `validation`) and
    `test` with a folder for each class. Classes are in the order of their sorted names. Hidden
    files and folders are skipped, links are followed.

    Args:
        root: the folder.
        nested: whether each folder with images is a class, named by its path, as in
            `genus/species`; otherwise the folders at the top are the classes, with all below them.

    Raises:
        UserError: the folder does not have that form.
    """
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise UserError(f"config.dataset.path must be a folder with images; {root} {what}")
    top = _subfolders(root)
    given = {name: ROLE_NAMES[name] for name in top if name in ROLE_NAMES}
    # A class may be called "train" too.
    has_splits = Role.TRAIN in given.values() and len(given) == len(top)
    splits = given if has_splits else {"": Role.TRAIN}
    if len(set(splits.values())) < len(splits):
        raise UserError(
            f"config.dataset.path {root} must have one folder for each split; it has "
            f"{', '.join(sorted(splits))}"
        )
    found = [
        (f"{split}/{path}" if split else path, _class_of(path, root / split, nested=nested), role)
        for split, role in splits.items()
        for path in _images_below(root / split)
    ]
    if not found:
        raise UserError(f"config.dataset.path {root} must be a folder with images; there are none")
    found.sort()
    _check_not_empty(root, splits, found, nested=nested)
    class_names = tuple(sorted({name for _, name, role in found if role is Role.TRAIN}))
    if len(class_names) == 1 and not nested and all(path.count("/") > 1 for path, _, _ in found):
        raise UserError(
            f"config.dataset.path {root} must have a folder for each class; it has one, "
            f"{class_names[0]}, with folders in it; config.dataset.nested=True makes each folder "
            "with images a class"
        )
    number = {name: label for label, name in enumerate(class_names)}
    if unknown := sorted({name for _, name, _ in found} - set(number)):
        raise UserError(
            f"config.dataset.path {root} has images of {unknown[0]!r} for validation or test, and "
            "none for training"
        )
    paths = tuple(path for path, _, _ in found)
    labels = np.array([number[name] for _, name, _ in found], np.int32)
    roles = np.array([role for _, _, role in found], np.int8)
    return GivenImages(
        root, paths, labels, roles, frozenset(splits.values()), keys=paths, class_names=class_names
    )


def _class_of(path: str, folder: Path, *, nested: bool) -> str:
    """The class of an image by its path below the folder of all classes."""
    parent, _, _ = path.rpartition("/")
    if not parent:
        raise UserError(
            f"config.dataset.path: {folder / path} must be in the folder of a class, "
            f"as {folder}/CLASS/{path}"
        )
    return parent if nested else parent.partition("/")[0]


def _check_not_empty(
    root: Path, splits: dict[str, Role], found: list[tuple[str, str, Role]], *, nested: bool
) -> None:
    """Refuses a folder of a class without any image, which is most likely a mistake."""
    if nested:
        return
    named = {name for _, name, _ in found}
    for split in splits:
        for name in _subfolders(root / split):
            if name not in named:
                raise UserError(
                    f"config.dataset.path: the folder of a class {root / split / name} has no "
                    "images; add some, or delete it"
                )


def _subfolders(folder: Path) -> list[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}") from error
    # A loop of links is no folder, and `entry.is_dir()` would raise.
    folders = (entry for entry in entries if os.path.isdir(entry.path))  # noqa: PTH112
    return sorted(entry.name for entry in folders if _is_shown(entry.name))


def _images_below(folder: Path) -> Iterator[str]:
    """The paths of the images below a folder, each file of a loop of links once."""
    seen = set()
    for parent, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        real = os.path.realpath(parent)
        if real in seen:
            # A link to a folder above this one, or to one that was walked through.
            folders.clear()
            continue
        seen.add(real)
        # Changed in place: the walk goes in this order, and not into hidden folders.
        folders[:] = sorted(name for name in folders if _is_shown(name))
        below = os.path.relpath(parent, folder).replace(os.sep, "/")
        prefix = "" if below == "." else f"{below}/"
        for name in sorted(names):
            if _is_shown(name) and image_formats.is_image(name):
                yield f"{prefix}{name}"


def _is_shown(name: str) -> bool:
    return not name.startswith(".")


def _refuse(error: OSError) -> None:
    raise UserError(f"cannot read {error.filename}: {error.strerror}") from error
