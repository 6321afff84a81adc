"""Computes the features of many images, and resumes an earlier start that was stopped.

The file is an .npz file, with what it belongs to as the comment of its archive.
"""

import dataclasses
import hashlib
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import jax
import numpy as np
from absl import logging

from train.classifiers import network_description
from train.classifiers.network import Network
from train.data import streaming
from train.data.batches import Batches
from train.data.examples import Examples, Split
from train.data.sources import features as feature_source
from train.foundation import file_locks, files, zip_files
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.progress_bar import ImageProgress
from train.prediction import image_files
from train.prediction.batching import one_ahead

BATCH_SIZE = 64
_TYPE = np.dtype("<f4")
# The names of the splits in files of features.
_WORDS = {Split.NONE: "", Split.TRAIN: "train", Split.VALIDATION: "val", Split.TEST: "test"}


def embed(network: Network, images: Examples, out: Path) -> None:
    """Writes the features of images to a file, and prints what is in it.

    Few images and features are in memory at a time. It continues after what an earlier start has
    left in a file beside `out`.

    Args:
        network: computes the features.
        images: the images, all of which can be read.
        out: the file.

    Raises:
        UserError: features are not finite, or the file beside `out` has those of something else.
    """
    identity = identity_of(network, images)
    found, is_whole = kept_in(out)
    if found == identity and is_whole:
        show_line(f"{out} has these features already")
        return
    if found == identity:
        logging.warning("%s is damaged: its features are computed again", out)
    partial = out.with_name(f"{out.name}.partial")
    with file_locks.open_locked(partial, f"another process is using {partial}") as file:
        rows = _complete(file, network, images, f"{identity}\n".encode())
        _write(out, identity, images, rows, network)
        partial.unlink()
    size = out.stat().st_size / 1e6
    show_line(f"features     {out} ({len(images):,} rows of {rows.shape[1]:,}, {size:,.1f} MB)")
    if images.class_names:
        counts = {split.word: int((images.splits == split).sum()) for split in Split if split >= 0}
        words = ", ".join(f"{count:,} {word}" for word, count in counts.items())
        show_line(f"labels       {len(images.class_names):,} classes; rows: {words}")
    else:
        show_line("labels       none: the images are not in folders of classes")


def identity_of(network: Network, images: Examples) -> str:
    """A hash that changes with the images, their groups, the network or the kind of device."""
    described = [network.digest, images.digest(), jax.__version__, jax.default_backend()]
    if images.groups is not None:
        described += [images.grammar or "", *images.groups.tolist()]
    return hashlib.sha256(json.dumps([*described, BATCH_SIZE]).encode()).hexdigest()


def kept_in(path: Path) -> tuple[str | None, bool]:
    """The identity that a file was written with, and whether all of it is what was written.

    The identity is None if it is not a file of features.
    """
    identity = None
    try:
        with zip_files.opened(path) as archive:
            identity = archive.comment.decode(errors="replace")
            return identity, archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return identity, False


def _complete(file: BinaryIO, network: Network, images: Examples, head: bytes) -> np.ndarray:
    """Adds the features that a file does not have yet; returns all, mapped."""
    path, shape = Path(file.name), (len(images), network.num_features)
    file.seek(0)
    if not head.startswith(file.read(len(head))):
        raise UserError(
            f"{path} has features of another network, of other images or with other flags, for the "
            "same --out; give another --out, or delete it"
        )
    # The end may be torn, and after a power cut the last batch may be empty. They are made again.
    size = BATCH_SIZE * shape[1] * _TYPE.itemsize
    batches = max(0, (os.fstat(file.fileno()).st_size - len(head)) // size - 1)
    with files.name_in_errors(path):
        file.truncate(len(head) + batches * size if batches else 0)
        if not batches:
            file.write(head)
    done = batches * BATCH_SIZE
    if done:
        show_line(f"continuing after {done:,} of {len(images):,} images")
    try:
        with ImageProgress("embedding", len(images), done=done) as progress:
            for features in _compute(network, images, batches):
                with files.name_in_errors(path):
                    file.write(features.astype(_TYPE).data)
                    file.flush()
                    os.fsync(file.fileno())
                done += len(features)
                progress.advance(len(features))
    finally:
        if done == 0:
            path.unlink()
    return np.memmap(file, _TYPE, "r", len(head), shape)


def _compute(network: Network, images: Examples, start: int) -> Iterator[np.ndarray]:
    """The features of each batch from a number on, [b, d].

    All batches but the last have one size, also after an interruption: the last bits of a feature
    may depend on it, and on the place of the image in its batch.
    """
    image_files.ignore_warnings()
    batches = Batches(examples=dataclasses.replace(images, reader=network.reader), size=BATCH_SIZE)
    embed_batch = network.compiled()
    streamed = streaming.stream(batches, range(start, len(batches)))
    started = ((batch, embed_batch(batch["images"])) for batch in streamed)
    for batch, outputs in one_ahead(started):
        features = np.asarray(outputs)[batch["mask"]]
        not_finite = ~np.isfinite(features).all(axis=1)
        if not_finite.any():
            name = images.name(batch["examples"][int(not_finite.argmax())])
            raise UserError(f"the network gives {name} features that are not finite")
        yield features


def _write(
    path: Path, identity: str, images: Examples, features: np.ndarray, network: Network
) -> None:
    """Writes the features, and the names, labels, splits and groups of their rows."""
    arrays = {"features": features, "names": images.names_of(np.arange(len(images))).astype(str)}
    if images.class_names:
        arrays["labels"] = images.labels.astype("<i4")
        arrays["class_names"] = np.array(images.class_names)
        arrays["split"] = np.array([_WORDS[Split(split)] for split in images.splits.tolist()])
    described = network_description.to_plain(network, images.grammar)
    if described is not None:
        arrays[feature_source.EMBEDDED_BY] = np.array([json.dumps(described)])
    if images.groups is not None:
        arrays["group"] = images.groups.astype(str)
    with files.replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.comment = identity.encode()
        for name, array in arrays.items():
            # A mapped array is copied part by part. Its size may exceed 4 GiB.
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
