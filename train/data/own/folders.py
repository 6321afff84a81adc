"""Finds the images of a folder that has a folder for each class."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from absl import logging

from train.data import image_formats
from train.data.own import class_names, split_folders
from train.data.own.found_images import FoundImages
from train.data.own.listing import Listing
from train.foundation.errors import ELSEWHERE, UserError
from train.foundation.names import same_form
from train.foundation.side_files import PassedOver, is_hidden
from train.foundation.spelling import spell


@dataclass(frozen=True)
class _Image:
    """An image that was found.

    Attributes:
        split: the name of the folder of its split; empty if there are no such folders.
        below: its path in that folder.
        name: the name of its class.
    """

    split: str
    below: str
    name: str

    @property
    def path(self) -> str:
        """Its path in the folder of all images."""
        return f"{self.split}/{self.below}" if self.split else self.below

    @property
    def folder(self) -> str:
        """The folder that it is in, as `below`."""
        return self.below.rpartition("/")[0]


def find(root: Path, *, nested: bool) -> FoundImages:
    """The images below a folder, sorted by path.

    The folder has a folder for each class, or folders of splits, such as `train`, `val` and `test`,
    with a folder for each class; see `split_folders`. Classes are in the order of their sorted
    names. Hidden files and folders, and files and folders of other programs, are skipped. Links are
    followed.

    Args:
        root: the folder.
        nested: whether each folder with images is a class, named by its path, as in
            `genus/species`; otherwise the folders at the top are the classes, with all below them.

    Raises:
        UserError: the folder does not have that form.
    """
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise UserError(
            field="config.dataset.path",
            must_be="a folder with images",
            but=f"{root} {what}",
            usually="" if root.exists() else ELSEWHERE,
        )
    where, at_the_top = f"{spell('config.dataset.path')} {root}", PassedOver()
    splits = split_folders.find(root, _subfolders(root, at_the_top))
    # Without folders of splits, the walk starts at the top.
    passed = PassedOver() if "" in splits else at_the_top
    found = [
        _Image(split, below, _class_of(below, root / split, nested=nested))
        for split in splits
        for below in _images_below(root / split, passed)
    ]
    passed.tell(where)
    if not found:
        raise UserError(f"{where} must be a folder with images; there are none")
    # A copy of the folder may have its names in another form of Unicode.
    found.sort(key=lambda image: (same_form(image.path), image.path))
    _check_folders_below(root, found)
    if not nested:
        _check_not_empty(root, splits, found)
        _tell_of_folders_below(root, found)
    labels, names = class_names.numbered([image.name for image in found], where)
    listing = Listing(
        paths=tuple(image.path for image in found),
        labels=labels,
        roles=np.array([splits[image.split] for image in found], np.int8),
        class_names=names,
        given=frozenset(splits.values()),
    )
    return FoundImages.in_files(listing, root, where)


def _class_of(below: str, folder: Path, *, nested: bool) -> str:
    """The class of an image by its path below the folder of all classes."""
    parent, _, _ = below.rpartition("/")
    if not parent:
        raise UserError(
            f"{spell('config.dataset.path')}: {folder / below} must be in the folder of a class, "
            f"as {folder}/CLASS/{below}",
            usually="the path is the folder of one class, not the folder with all classes",
        )
    return parent if nested else parent.partition("/")[0]


def _check_not_empty(root: Path, splits: Iterable[str], found: Sequence[_Image]) -> None:
    """Refuses a folder of a class without any image, which is most likely a mistake."""
    named = {image.name for image in found}
    for split in splits:
        for name in _subfolders(root / split, PassedOver()):
            if name not in named:
                raise UserError(
                    f"{spell('config.dataset.path')}: the folder of a class {root / split / name} "
                    "has no images; add some, or delete it"
                )


def _check_folders_below(root: Path, found: Sequence[_Image]) -> None:
    """Refuses folders of splits that are not at the top, because they would be parts of classes."""
    inside: dict[str, dict[str, None]] = {}
    for folder in dict.fromkeys(image.folder for image in found):
        parts = folder.split("/")
        for depth, part in enumerate(parts[1:], start=1):
            inside.setdefault("/".join(parts[:depth]), {})[part] = None
    for folder, names in inside.items():
        if len(names) > 1 and split_folders.are_splits(names):
            raise UserError(
                field="config.dataset.path",
                must_be="the folder with the folders of splits, and these must have the folders "
                f"of classes, as in {next(iter(names))}/CLASS",
                but=f"in {root}, the folder {folder} has {', '.join(names)}",
            )


def _tell_of_folders_below(root: Path, found: Sequence[_Image]) -> None:
    """Warns of classes that have images only in further folders, which may be the classes.

    Raises:
        UserError: there is no other class.
    """
    folders = dict.fromkeys((image.name, image.folder) for image in found)
    direct = {name for name, folder in folders if name == folder}
    below = [folder for name, folder in folders if name not in direct]
    classes = {name for name, _ in folders}
    if not below:
        return
    if len(classes) == 1:
        raise UserError(
            f"{spell('config.dataset.path')} {root} must have a folder for each class; it has one, "
            f"{min(classes)}, with folders in it; {spell('config.dataset.nested=True')} makes each "
            "folder with images a class"
        )
    logging.warning(
        "%s %s: %d of the %d classes have images only in subfolders, %d in all, such as %s; %s "
        "makes each of these a class",
        spell("config.dataset.path"),
        root,
        len(classes - direct),
        len(classes),
        len(below),
        below[0],
        spell("config.dataset.nested=True"),
    )


def _subfolders(folder: Path, passed: PassedOver) -> list[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}") from error
    # A loop of links is not a folder, and `entry.is_dir()` would raise.
    folders = (entry for entry in entries if os.path.isdir(entry.path))  # noqa: PTH112
    return sorted(entry.name for entry in folders if not passed.is_passed(entry.name))


def _images_below(folder: Path, passed: PassedOver) -> Iterator[str]:
    """The paths of the images below a folder, each file of a loop of links once."""
    seen = set()
    for parent, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        real = os.path.realpath(parent)
        if real in seen:
            # A link to a folder above this one, or to one that was walked through.
            folders.clear()
            continue
        seen.add(real)
        # Changed in place: the walk goes in this order, and not into folders of other programs.
        folders[:] = sorted(name for name in folders if not passed.is_passed(name))
        below = os.path.relpath(parent, folder).replace(os.sep, "/")
        prefix = "" if below == "." else f"{below}/"
        for name in sorted(names):
            if not is_hidden(name) and image_formats.is_image(name):
                yield f"{prefix}{name}"


def _refuse(error: OSError) -> None:
    raise UserError(f"cannot read {error.filename}: {error.strerror}") from error
