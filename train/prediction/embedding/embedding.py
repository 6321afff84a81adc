"""Computes the features of many images, and resumes an earlier start that was stopped."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import jax
import numpy as np
from absl import logging

from train.data import streaming
from train.data.batches import Batches
from train.data.examples import Examples, Split
from train.foundation import file_locks, files
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.progress_bar import ImageProgress
from train.prediction import batching, image_files
from train.prediction.embedding import archive, description
from train.prediction.embedding.network import Network

BATCH_SIZE = 64
_TYPE = np.dtype("<f4")


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
    if archive.identity_of(out) == identity:
        if archive.is_whole(out):
            show_line(f"{out} has these features already")
            return
        logging.warning("%s is damaged: its features are computed again", out)
    partial = out.with_name(f"{out.name}.partial")
    with file_locks.open_locked(partial, f"another process is using {partial}") as file:
        rows = _complete(file, network, images, f"{identity}\n".encode())
        described = description.to_plain(network, images.grammar)
        archive.write(out, identity, images, rows, described)
        partial.unlink()
    _summarize(out, images, network.num_features)


def _complete(file: BinaryIO, network: Network, images: Examples, head: bytes) -> np.ndarray:
    """Adds the features that a file does not have yet; returns all, mapped."""
    path, shape = Path(file.name), (len(images), network.num_features)
    file.seek(0)
    found = file.read(len(head))
    if not head.startswith(found):
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
    may depend on it, and on the place of its image in the batch.
    """
    image_files.ignore_warnings()
    batches = Batches(examples=dataclasses.replace(images, reader=network.reader), size=BATCH_SIZE)
    streamed = streaming.stream(batches, range(start, len(batches)))
    inputs = ((batch, batch["images"]) for batch in streamed)
    for batch, outputs in batching.one_ahead(network.compiled(), inputs):
        features = np.asarray(outputs)[batch["mask"]]
        not_finite = ~np.isfinite(features).all(axis=1)
        if not_finite.any():
            name = images.name(batch["examples"][int(not_finite.argmax())])
            raise UserError(f"the network gives {name} features that are not finite")
        yield features


def identity_of(network: Network, images: Examples) -> str:
    """A hash that changes with the images, their groups, the network or the kind of device."""
    described = [network.digest, images.digest(), jax.__version__, jax.default_backend()]
    if images.groups is not None:
        described += [images.grammar or "", *images.groups.tolist()]
    return hashlib.sha256(json.dumps([*described, BATCH_SIZE]).encode()).hexdigest()


def _summarize(out: Path, images: Examples, num_features: int) -> None:
    size = out.stat().st_size / 1e6
    show_line(f"features     {out} ({len(images):,} rows of {num_features:,}, {size:,.1f} MB)")
    if images.class_names:
        counts = {split.word: int((images.splits == split).sum()) for split in Split if split >= 0}
        words = ", ".join(f"{count:,} {word}" for word, count in counts.items())
        show_line(f"labels       {len(images.class_names):,} classes; rows: {words}")
    else:
        show_line("labels       none: the images are not in folders of classes")
