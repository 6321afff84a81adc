"""The file of features, as `numpy.savez` writes it, written row by row."""

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from train.data.own import feature_files
from train.data.own.listing import Listing, Role
from train.foundation import array_files, files, zip_files

# How many rows of texts are in memory at a time.
_CHUNK = 2**14
# The names of the splits in files of features.
_WORDS = {Role.TRAIN: "train", Role.VALIDATION: "val", Role.TEST: "test"}


def write(
    path: Path,
    identity: str,
    images: Listing,
    readable: np.ndarray,
    features: Iterable[np.ndarray],
    num_features: int,
    embedded_by: Mapping[str, Any] | None,
) -> None:
    """Writes the features, and the names, labels, splits and groups of their rows.

    Args:
        path: the file.
        identity: what it belongs to; see `identity_of`.
        images: the images; without classes, the file has neither labels nor splits.
        readable: whether each could be read and has features, bool [n].
        features: the features of the images that could be read, in some parts, float32 [m, d].
        num_features: the number of features d.
        embedded_by: the network; see `description.to_plain`. None if it cannot be described.
    """
    chosen = np.flatnonzero(readable)
    with files.replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.comment = identity.encode()
        shape = (len(chosen), num_features)
        _add(archive, "features", np.dtype("<f4"), shape, features)
        _add_texts(archive, "names", [images.paths[index] for index in chosen.tolist()])
        if images.class_names:
            labels = images.labels[chosen].astype("<i4")
            _add(archive, "labels", labels.dtype, labels.shape, [labels])
            _add_texts(archive, "class_names", images.class_names)
            roles = images.roles[chosen].tolist()
            _add_texts(archive, "split", [_WORDS[Role(role)] for role in roles])
        if embedded_by is not None:
            _add_texts(archive, feature_files.EMBEDDED_BY, [json.dumps(embedded_by)])
        if images.has_groups:
            groups = images.given_groups()
            _add_texts(archive, "group", [groups[index] for index in chosen.tolist()])


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


def num_rows(path: Path) -> int:
    """The number of images that have features in a file of features that is whole."""
    return array_files.in_npz(path)["features"]().shape[0]


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
