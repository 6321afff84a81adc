"""The file of features: an .npz file, with its identity as the comment of the archive."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from train.data.examples import Examples, Split
from train.data.sources import features as feature_source
from train.foundation import files, zip_files

# The names of the splits in files of features.
_WORDS = {Split.NONE: "", Split.TRAIN: "train", Split.VALIDATION: "val", Split.TEST: "test"}


def write(
    path: Path,
    identity: str,
    images: Examples,
    features: np.ndarray,
    embedded_by: Mapping[str, Any] | None,
) -> None:
    """Writes the features, and the names, labels, splits and groups of their rows.

    Args:
        path: the file.
        identity: what it belongs to; see `identity_of`.
        images: the images; without classes, the file has neither labels nor splits.
        features: the features of the images, [m, d], which may be mapped.
        embedded_by: the network; see `description.to_plain`. None if it cannot be described.
    """
    arrays = {"features": features, "names": images.names_of(np.arange(len(images))).astype(str)}
    if images.class_names:
        arrays["labels"] = images.labels.astype("<i4")
        arrays["class_names"] = np.array(images.class_names)
        arrays["split"] = np.array([_WORDS[Split(split)] for split in images.splits.tolist()])
    if embedded_by is not None:
        arrays[feature_source.EMBEDDED_BY] = np.array([json.dumps(embedded_by)])
    if images.groups is not None:
        arrays["group"] = images.groups.astype(str)
    with files.replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.comment = identity.encode()
        for name, array in arrays.items():
            # A mapped array is copied part by part. Its size may exceed 4 GiB.
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def identity_of(path: Path) -> str | None:
    """The identity that a file was written with; None if it is not a file of features."""
    try:
        with zip_files.opened(path) as archive:
            return archive.comment.decode(errors="replace")
    except (OSError, zipfile.BadZipFile):
        return None


def is_whole(path: Path) -> bool:
    """Whether all of a file of features is what was written."""
    try:
        with zip_files.opened(path) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False
