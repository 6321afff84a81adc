"""Computes the features of many images, and resumes an earlier start that was stopped."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from absl import logging

from train.data import streaming
from train.data.batches import Batches
from train.data.examples import Examples, Split
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.prediction import batching, image_files
from train.prediction.embedding import archive, description
from train.prediction.embedding.network import Network
from train.sharing import part_files, sharing
from train.sharing.part_files import Head
from train.sharing.work import ALONE, Share, Work, counting

BATCH_SIZE = 64


def embed(network: Network, images: Examples, out: Path, *, share: Share = ALONE) -> None:
    """Writes the features of images to a file, and prints what is in it.

    Few images and features are in memory at a time.

    Args:
        network: computes the features.
        images: the images, all of which can be read.
        out: the file.
        share: how this process takes part in the work. If it does all of the work, it continues
            after what an earlier start has left in a file beside `out`.

    Raises:
        PartWritten: this process has written its part.
        UserError: features are not finite.
    """
    identity = identity_of(network, images)
    if archive.identity_of(out) == identity:
        if archive.is_whole(out):
            show_line(f"{out} has these features already")
            return
        logging.warning("%s is damaged: its features are computed again", out)
    work = _work(network, images)

    def write(features: Iterator[np.ndarray]) -> None:
        described = description.to_plain(network, images.grammar)
        archive.write(out, identity, images, features, network.num_features, described)

    if share is not ALONE:
        write(share.results(work))
    else:
        head = Head(work.name, 0, 1, work.number, {"features": identity})
        with part_files.opened(beside(out), head) as part:
            sharing.complete(part, head.share, work)
            write(map(work.decode, part.results()))
            beside(out).unlink()
    _summarize(out, images, network.num_features)


def beside(out: Path) -> Path:
    """The file of the features that were computed so far, if one process computes all."""
    return out.with_name(f"{out.name}.partial")


def _work(network: Network, images: Examples) -> Work[np.ndarray]:
    """The work, in batches of one size.

    All batches but the last have this size, also after an interruption and in each share: the last
    bits of a feature may depend on it, and on the place of its image in the batch.
    """
    width = network.num_features
    return Work(
        "features",
        "embedding",
        "images",
        batching.number_of_batches(len(images), BATCH_SIZE),
        counting(len(images), BATCH_SIZE),
        lambda units: _compute(network, images, units),
        lambda found: found.astype("<f4").tobytes(),
        lambda content: np.frombuffer(content, "<f4").reshape(-1, width),
    )


def _compute(network: Network, images: Examples, units: range) -> Iterator[np.ndarray]:
    """The features of each batch, [b, d]."""
    image_files.ignore_warnings()
    batches = Batches(examples=dataclasses.replace(images, reader=network.reader), size=BATCH_SIZE)
    inputs = ((batch, batch["images"]) for batch in streaming.stream(batches, units))
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
