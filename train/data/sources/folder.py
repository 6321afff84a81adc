"""Images in a folder that has a folder for each class, or one for each split with its classes."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train.data.examples import Examples, Split, classes, split_named
from train.foundation import files, names
from train.foundation.console import first_names, in_words
from train.foundation.errors import UserError

# What Pillow decodes. A list, for a folder to have the same images with every version of Pillow.
_FORMATS = """
apng avif avifs blp bmp bw cur dcx dds dib fit fits flc fli ftc ftu gbr gif heic heics heif heifs
hif icb icns ico iim im j2c j2k jfif jp2 jpc jpe jpeg jpf jpg jpx msp pbm pcd pcx pfm pgm png pnm
ppm psd pxr qoi ras rgb rgba sgi tga tif tiff vda vst webp xbm xpm
"""
# Where systems and programs keep previews and deleted files. In lower case.
_SIDE_FOLDERS = ("@eadir", "#recycle", "@recycle", "#snapshot", "$recycle.bin", "__macosx")
IMAGE_ENDINGS = frozenset(f".{ending}" for ending in _FORMATS.split())


@dataclass(frozen=True, eq=False)
class Files(Sequence[bytes]):
    """The contents of files, each read when it is asked for.

    Attributes:
        root: the folder that their paths start in.
        paths: their paths, texts [n]; some may be absolute.
    """

    root: Path
    paths: np.ndarray

    def __len__(self) -> int:
        """The number of files."""
        return len(self.paths)

    def __getitem__(self, index: Any) -> Any:
        """The content of a file; raises `OSError` if it cannot be read, or is a pipe."""
        # `Path.joinpath` takes as long as reading does, with images of 1 kB.
        return files.read_bounded(os.path.join(self.root, self.paths[index]))  # noqa: PTH118

    def sizes(self) -> np.ndarray:
        """The bytes of each file, int64 [n]; -1 for what is no file."""
        paths = (os.path.join(self.root, one) for one in self.paths)  # noqa: PTH118
        is_file, size = os.path.isfile, os.path.getsize
        return np.array([size(one) if is_file(one) else -1 for one in paths], np.int64)


def digest_of_sizes(sizes: np.ndarray) -> str:
    """A hash for `Examples.content`: files whose content changes most likely change their size."""
    return hashlib.sha256(sizes.astype("<i8").tobytes()).hexdigest()


def find(
    path: Path, *, nested: bool = False, labelled: bool = True, field: str = "config.dataset.path"
) -> Examples:
    """The images below a folder, sorted by path. Links are followed; hidden files are no images.

    Args:
        path: the folder.
        nested: whether each folder with images is a class, called by its path as genus/species;
            otherwise it is the upper one, with all below.
        labelled: whether the images have classes; otherwise they may be anywhere in the folder.
        field: what names the folder in messages.

    Raises:
        UserError: the folder does not have that form.
    """
    where = f"{field} {path}"
    # A copy of the folder may have its names in another form of Unicode.
    found = sorted(_images_below(path), key=lambda one: (names.same_form(one), one))
    if not found:
        raise UserError(f"{where} must be a folder with images; there are none")
    parts = [one.split("/") for one in found]
    labels, class_names, splits = np.full(len(found), -1), tuple[str, ...](), dict[str, Split]()
    if labelled:
        splits = _splits(path, where, parts)
        start = 1 if splits else 0
        if loose := ["/".join(one) for one in parts if len(one) == start + 1]:
            also = f"it also has {first_names(loose)}"
            raise UserError(f"{where} must have all images in folders of classes; {also}")
        end = -1 if nested else start + 1
        labels, class_names = classes("/".join(one[start:end]) for one in parts)
    inputs = Files(path, np.array(found, object))
    return Examples.of_source(
        inputs,
        labels,
        class_names,
        where,
        splits=np.array([splits.get(one[0], Split.NONE) for one in parts], np.int8),
        names=inputs.paths,
        content=digest_of_sizes(inputs.sizes()),
    )


def _splits(root: Path, where: str, parts: Sequence[Sequence[str]]) -> dict[str, Split]:
    """The split of each folder at the top; empty if these are classes.

    A class may be called as a split, such as "test": its images are directly in its folder.
    """
    inner: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for folders in {tuple(one[:-1]) for one in parts}:
        for depth, name in enumerate(folders):
            inner[folders[:depth]].add(name)
    top = inner.pop((), set())
    found = {one.name for one in root.iterdir() if one.is_dir() and not _is_passed(one.name)}
    if empty := sorted(found - top):
        raise UserError(f"{where} has folders without images: {in_words(empty, 'folders')}")
    for upper, lower in inner.items():
        if len(lower) > 1 and _are_splits(lower):
            inner_root = root.joinpath(*upper)
            raise UserError(f"{where} must be the folder of the splits, such as {inner_root}")
    named = {name: split for name in top if (split := split_named(name)) is not None}
    deep = named.keys() - {one[0] for one in parts if len(one) == 2}
    if not named or (len(named) < len(top) and not deep):
        return {}
    if not _are_splits(top):
        raise UserError(
            f"{where} must have folders of classes, or a folder for each split and one for "
            f"training; it has {in_words(sorted(top), 'folders')}; images of a class called "
            f"{min(named)} must be directly in its folder"
        )
    return named


def _are_splits(folders: Collection[str]) -> bool:
    """Whether all folders are called as splits, each as another one, and one as training."""
    found = {split_named(name) for name in folders}
    return None not in found and Split.TRAIN in found and len(found) == len(folders)


def _images_below(root: Path) -> Iterator[str]:
    """The paths of the images below a folder, with "/" between folders."""
    seen = set()
    for folder, folders, found in os.walk(root, followlinks=True, onerror=_refuse):
        if (real := os.path.realpath(folder)) in seen:
            # A link to a folder above, or to one that was walked through.
            folders.clear()
            continue
        seen.add(real)
        # Changed in place: the walk goes in this order, and not into folders of other programs.
        folders[:] = sorted(name for name in folders if not _is_passed(name))
        below = os.path.relpath(folder, root).replace(os.sep, "/")
        for name in found:
            ending = os.path.splitext(name)[1].lower()  # noqa: PTH122 (as long as a small image)
            if ending in IMAGE_ENDINGS and not name.startswith("."):
                yield name if below == "." else f"{below}/{name}"


def _is_passed(folder: str) -> bool:
    """Whether a folder is hidden, or one that another program keeps for itself."""
    return folder.startswith(".") or folder.lower() in _SIDE_FOLDERS


def _refuse(error: OSError) -> None:
    raise UserError(f"cannot read {error.filename}: {error.strerror}") from error
