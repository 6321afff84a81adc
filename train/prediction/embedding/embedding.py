"""Computes the features of many images, and resumes an earlier start that was stopped."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
from absl import logging

from train.data.batches import SkippedImage
from train.data.images import UnreadableImageError
from train.data.own import listing, unreadable_images
from train.data.own.found_images import FoundImages
from train.data.records import Records
from train.foundation import messages, reading
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.prediction import batching, image_files
from train.prediction.embedding import archive, description
from train.prediction.embedding.network import Network
from train.sharing import part_files, sharing
from train.sharing.part_files import Head
from train.sharing.work import ALONE, Share, Work, counting

BATCH_SIZE = 64
# Which images of a batch can be read, bool [b], and features of all of them, float32 [b, d].
_Batch = tuple[np.ndarray, np.ndarray]
_ADVICE = "--skip_unreadable leaves such images out"


def embed(
    network: Network,
    images: FoundImages,
    out: Path,
    *,
    skip_unreadable: bool,
    share: Share = ALONE,
) -> None:
    """Writes the features of images to a file, and prints what is in it.

    Few images and features are in memory at a time.

    Args:
        network: computes the features.
        images: the images.
        out: the file.
        skip_unreadable: whether images that cannot be read are left out; otherwise they are an
            error, before the first feature is computed if their first and last bytes show it.
        share: how this process takes part in the work. If it does all of the work, it continues
            after what an earlier start has left in a file beside `out`.

    Raises:
        PartWritten: this process has written its part.
        UserError: an image cannot be read, or its features are not finite.
    """
    identity = identity_of(network, images)
    number, num_features = len(images.listing), network.num_features
    if archive.identity_of(out) == identity:
        if archive.is_whole(out):
            if not skip_unreadable and (rows := archive.num_rows(out)) < number:
                raise UserError(
                    f"{out} has features of {rows:,} of the {number:,} images: the others cannot "
                    f"be read, and were left out before; {_ADVICE}"
                )
            show_line(f"{out} has these features already")
            return
        logging.warning("%s is damaged: its features are computed again", out)
    work = _work(network, images, skip_unreadable=skip_unreadable)

    def write(results: Callable[[], Iterator[_Batch]]) -> np.ndarray:
        readable = _readable(results())
        if readable.any():
            features = (found[rows] for rows, found in results())
            described = description.to_plain(network, images.grammar)
            archive.write(
                out, identity, images.listing, readable, features, num_features, described
            )
        return readable

    if share is not ALONE:
        readable = write(lambda: share.results(work))
    else:
        head = Head(work.name, 0, 1, work.number, {"features": identity})
        with part_files.opened(beside(out), head) as part:
            earlier = _readable(map(work.decode, part.results()))
            if not (skip_unreadable or earlier.all()):
                left_out = images.listing.paths[int(earlier.argmin())]
                raise UserError(f"{left_out} cannot be read, and was left out before; {_ADVICE}")
            sharing.complete(part, head.share, work)
            readable = write(lambda: map(work.decode, part.results()))
            beside(out).unlink()
    if not readable.any():
        raise UserError(f"none of the {number:,} images in {images.root} can be read")
    _summarize(out, images.listing, readable, num_features)


def beside(out: Path) -> Path:
    """The file of the features that were computed so far, if one process computes all."""
    return out.with_name(f"{out.name}.partial")


def _readable(batches: Iterator[_Batch]) -> np.ndarray:
    """Which images of some batches can be read."""
    return np.concatenate([np.zeros(0, bool), *(readable for readable, _ in batches)])


def _work(network: Network, images: FoundImages, *, skip_unreadable: bool) -> Work[_Batch]:
    """The work, in batches of one size.

    All batches but the last have this size, also after an interruption and in each share: the last
    bits of a feature may depend on it, and on the place of its image in the batch.
    """
    number, width = len(images.listing), network.num_features

    def decode(content: bytes) -> _Batch:
        size = len(content) // (1 + 4 * width)
        # A copy: it is kept longer than the features.
        readable = np.frombuffer(content, bool, size).copy()
        return readable, np.frombuffer(content, "<f4", offset=size).reshape(size, width)

    return Work(
        "features",
        "embedding",
        "images",
        batching.number_of_batches(number, BATCH_SIZE),
        counting(number, BATCH_SIZE),
        lambda units: _compute(network, images, units, skip_unreadable=skip_unreadable),
        lambda found: found[0].tobytes() + found[1].astype("<f4").tobytes(),
        decode,
    )


def _compute(
    network: Network, images: FoundImages, units: range, *, skip_unreadable: bool
) -> Iterator[_Batch]:
    """Which images of each batch can be read, bool [b], and features of all of them, [b, d]."""
    image_files.ignore_warnings()
    if not skip_unreadable:
        _check(network, images)
    batches = _batches(network, images, units, skip_unreadable=skip_unreadable)
    for (start, readable), outputs in batching.one_ahead(network.compiled(), batches):
        features = np.asarray(outputs)[: len(readable)]
        not_finite = readable & ~np.isfinite(features).all(axis=1)
        if not_finite.any():
            path = images.listing.paths[start + int(not_finite.argmax())]
            raise UserError(f"the network gives {path} features that are not finite")
        yield readable, features


def _check(network: Network, images: FoundImages) -> None:
    """Refuses images that cannot be read, if this shows without decoding all of them."""
    records = _records(network, images)
    found = [
        SkippedImage(records.file_name(index), records.name, str(error))
        for chunk in unreadable_images.find(records, check=unreadable_images.HEADERS)
        for index, error in chunk
    ]
    if found:
        raise unreadable_images.refused(found, _ADVICE)


def _records(network: Network, images: FoundImages) -> Records:
    indices = np.arange(len(images.listing))
    return Records(images.images, indices, str(images.root), network.reader)


def _batches(
    network: Network, images: FoundImages, units: range, *, skip_unreadable: bool
) -> Iterator[tuple[tuple[int, np.ndarray], np.ndarray]]:
    """The first index of each batch and which of its images can be read, and their pixels."""
    records = _records(network, images)
    indices = batching.indices(units, BATCH_SIZE, len(images.listing))

    def read(index: int) -> np.ndarray | UnreadableImageError:
        try:
            return network.reader.for_evaluation(*records.encoded(index))
        except UnreadableImageError as error:
            return error

    every = (index for batch in indices for index in batch.tolist())
    pixels = reading.in_threads(read, every, ahead=BATCH_SIZE)
    for of_batch in indices:
        readable = np.ones(len(of_batch), bool)
        batch = np.zeros((BATCH_SIZE, *network.image_shape), np.uint8)
        for row in range(len(readable)):
            found = next(pixels)
            if isinstance(found, np.ndarray):
                batch[row] = found
                continue
            if not skip_unreadable:
                raise UserError(f"{found}; {_ADVICE}") from found
            logging.warning("left out: %s", found)
            readable[row] = False
        yield (int(of_batch[0]), readable), batch


def identity_of(network: Network, images: FoundImages) -> str:
    """A hash that changes with the images, their groups, the network or the kind of device."""
    described = [network.digest, images.state, jax.__version__, jax.default_backend(), BATCH_SIZE]
    if images.listing.has_groups:
        described += images.listing.given_groups()
    if images.grammar is not None:
        # Features of an earlier version do not have it.
        described.append(images.grammar)
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()


def _summarize(out: Path, images: listing.Listing, readable: np.ndarray, num_features: int) -> None:
    rows = int(readable.sum())
    size = out.stat().st_size / 1e6
    show_line(f"features     {out} ({rows:,} rows of {num_features:,}, {size:,.1f} MB)")
    if images.class_names:
        counts = np.bincount(images.roles[readable], minlength=3).tolist()
        words = ", ".join(
            f"{count:,} {role.name.lower()}"
            for role, count in zip(listing.Role, counts, strict=True)
        )
        show_line(f"labels       {len(images.class_names):,} classes; rows: {words}")
    else:
        show_line("labels       none: the images are not in folders of classes")
    unreadable = [images.paths[index] for index in np.flatnonzero(~readable).tolist()]
    if unreadable:
        show_line(f"left out     unreadable: {messages.in_words(unreadable, 'images')}")
