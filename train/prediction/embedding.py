"""Computes the features of the images that --images names, and resumes a start that was stopped.

The file is an .npz file, with what it belongs to as the comment of its archive.
"""

import dataclasses
import hashlib
import json
import math
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from train.classifiers.network import Network, describe
from train.configuration.datasets import ImagesFields
from train.data import division, own_images, reading, streaming
from train.data.batches import Batches
from train.data.examples import Examples, Split
from train.data.sources import features as feature_source
from train.foundation import files
from train.foundation.console import show_line, tracked
from train.foundation.errors import UserError

BATCH_SIZE = 64
_TYPE = np.dtype("<f4")
# The names of the splits in files of features.
_WORDS = {Split.NONE: "", Split.TRAIN: "train", Split.VALIDATION: "val", Split.TEST: "test"}


def find(path: Path, **fields: Any) -> Examples:
    """The images that can be read, divided; without classes if a folder has only files.

    Args:
        path: where the images are.
        fields: those of `config.dataset` that do not have their default.

    Raises:
        UserError: they have another form, there are none, or some cannot be read.
    """
    given = ImagesFields(name="images", batch_size=1, path=str(path), augmentation="none", **fields)
    own_images.check(given)
    path = path.expanduser()
    is_flat = path.is_dir() and not any(one.is_dir() for one in path.iterdir())
    found, _, looks = own_images.looked_at(
        own_images.find(given, labelled=not is_flat),
        given,
        how="--skip_unreadable leaves such images out",
    )
    assert looks is not None
    # Another image may have as many bytes.
    content = hashlib.sha256(looks.copies.tobytes()).hexdigest()
    found = dataclasses.replace(found, content=found.content + content)
    if is_flat:
        return found
    # The file of features has all classes. The run that reads it decides about them.
    divided = division.divide(
        found,
        validation=given.validation_fraction,
        test=given.test_fraction,
        unseen=division.KEEP,
    )
    own_images.warn_of_likely(divided)
    return divided


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
    identity = _identity_of(network, images)
    if _is_whole(out, identity):
        show_line(f"{out} has these features already")
        return
    partial = out.with_name(f"{out.name}.partial")
    held = files.lock(out.parent, "another command", f".{out.name}.lock")
    with held, partial.open("a+b") as file:
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


def _identity_of(network: Network, images: Examples) -> str:
    """A hash that changes with the images, their groups, the network or the kind of device."""
    groups = [] if images.groups is None else [images.grammar or "", *images.groups.tolist()]
    described = [network.digest, images.digest(), jax.__version__, jax.default_backend(), *groups]
    return hashlib.sha256(json.dumps([*described, BATCH_SIZE]).encode()).hexdigest()


def _is_whole(path: Path, identity: str) -> bool:
    """Whether a file has the features of an identity, and is as it was written."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.comment == identity.encode() and archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


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
        left = math.ceil((len(images) - done) / BATCH_SIZE)
        for features in tracked(_compute(network, images, batches), left, "embedding batches"):
            with files.name_in_errors(path):
                file.write(features.astype(_TYPE).data)
                file.flush()
                os.fsync(file.fileno())
            done += len(features)
    finally:
        if done == 0:
            path.unlink()
    return np.memmap(file, _TYPE, "r", len(head), shape)


def _compute(network: Network, images: Examples, start: int) -> Iterator[np.ndarray]:
    """The features of each batch from a number on, [b, d].

    All batches but the last have one size, also after an interruption: the last bits of a feature
    may depend on it, and on the place of the image in its batch.
    """
    reading.ignore_warnings()
    batches = Batches(examples=dataclasses.replace(images, reader=network.reader), size=BATCH_SIZE)
    embed_batch = network.compiled()
    streamed = streaming.stream(batches, range(start, len(batches)))
    embedded = ((batch, embed_batch(batch["images"])) for batch in streamed)
    # The device computes while features are written.
    for batch, outputs in reading.started(embedded, 1):
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
    described = describe(network, images.grammar)
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
