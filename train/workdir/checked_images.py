"""Checks all images of a run before its first step: an unreadable one would end it late."""

from collections.abc import Mapping

import numpy as np

from train.data import Dataset
from train.data.batches import SkippedImage
from train.data.own import unreadable_images
from train.data.records import Records
from train.devices import processes
from train.foundation.errors import UserError
from train.workdir import terminal

# Images that cannot be read, by their split and then by their index in it.
Unreadable = Mapping[str, Mapping[int, SkippedImage]]


def find_unreadable(dataset: Dataset, check: str, *, begins: bool) -> Unreadable:
    """The images that cannot be read; the same in all processes.

    Args:
        dataset: the opened data set.
        check: how they are checked, one of `unreadable_images.CHECKS`.
        begins: whether the run has not made a step yet. It then needs images of all classes.

    Raises:
        UserError: no image of a split, or of a class in training, can be read.
    """
    found: dict[str, Mapping[int, SkippedImage]] = {}
    for name in ("train", "validation", "test"):
        split = dataset.splits[name]
        if not isinstance(split.images, Records):
            continue
        unreadable = _find_in_split(split.images, check, name)
        if len(unreadable) == len(split):
            raise UserError(
                f"none of the {len(split):,} {name} images of {split.images.name} can be read"
            )
        if unreadable:
            found[name] = unreadable
        if begins and name == "train":
            left = np.delete(split.labels, list(unreadable))
            # Noise in the labels can leave a class without images.
            without = np.setdiff1d(split.labels, left)
            if without.size:
                names = [dataset.class_names[label] for label in without.tolist()]
                raise unreadable_images.without_images(names, split.images.name)
    return found


def _find_in_split(records: Records, check: str, split: str) -> dict[int, SkippedImage]:
    """The images of a split that cannot be read in some process, by their indices."""
    chunks = unreadable_images.find(records, check=check)
    total = -(-len(records) // unreadable_images.CHUNK)
    tracked = terminal.tracked(chunks, total=total, what=f"checking the {split} images")
    errors = {index: str(error) for chunk in tracked for index, error in chunk}
    mask = np.zeros(len(records), bool)
    mask[list(errors)] = True
    # Each process reads files of its own, perhaps on another disk.
    masks = processes.gather({"unreadable": mask})["unreadable"].reshape(-1, len(records))
    return {
        index: SkippedImage(
            image := records.file_name(index),
            records.name,
            errors.get(index, f"another process cannot read {image} of {records.name}"),
        )
        for index in np.flatnonzero(masks.any(axis=0)).tolist()
    }
