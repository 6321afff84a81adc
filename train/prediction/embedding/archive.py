"""The file of features, as `numpy.savez` writes it, written row by row."""

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from train.data.examples import Examples, Split
from train.data.sources import features as feature_source
from train.foundation import files, zip_files

# How many rows of texts are in memory at a time.
_CHUNK = 2**14
# The names of the splits in files of features.
_WORDS = {Split.NONE: "", Split.TRAIN: "train", Split.VALIDATION: "val", Split.TEST: "test"}


def write(
    path: Path,
    identity: str,
    images: Examples,
    features: Iterable[np.ndarray],
    num_features: int,
    embedded_by: Mapping[str, Any] | None,
) -> None:
    """Writes the features, and the names, labels, splits and groups of their rows.

    Args:
        path: the file.
        identity: what it belongs to; see `identity_of`.
        images: the images; without classes, the file has neither labels nor splits.
        features: the features of the images, in some parts, float32 [m, d].
        num_features: the number of features d.
        embedded_by: the network; see `description.to_plain`. None if it cannot be described.
    """
    with files.replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.comment = identity.encode()
        shape = (len(images), num_features)
        _add(archive, "features", np.dtype("<f4"), shape, features)
        _add_texts(archive, "names", images.names_of(np.arange(len(images))).tolist())
        if images.class_names:
            labels = images.labels.astype("<i4")
            _add(archive, "labels", labels.dtype, labels.shape, [labels])
            _add_texts(archive, "class_names", images.class_names)
            splits = images.splits.tolist()
            _add_texts(archive, "split", [_WORDS[Split(split)] for split in splits])
        if embedded_by is not None:
            _add_texts(archive, feature_source.EMBEDDED_BY, [json.dumps(embedded_by)])
        if images.groups is not None:
            _add_texts(archive, "group", images.groups.tolist())


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


def _add_texts(archive: zipfile.ZipFile, name: str, texts: list[str] | tuple[str, ...]) -> None:
    dtype = np.dtype(f"<U{max(map(len, texts))}")
    chunks: Iterator[np.ndarray] = (
        np.array(texts[start : start + _CHUNK], dtype) for start in range(0, len(texts), _CHUNK)
    )
    _add(archive, name, dtype, (len(texts),), chunks)


def _add(
    archive: zipfile.ZipFile,
    name: str,
    dtype: np.dtype,
    shape: tuple[int, ...],
    parts: Iterable[np.ndarray],
) -> None:
    """Adds an array, with one part in memory at a time; its rows can be read one by one."""
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    # The size is not known before, and may exceed 4 GiB.
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for part in parts:
            member.write(np.ascontiguousarray(part, dtype).data)
