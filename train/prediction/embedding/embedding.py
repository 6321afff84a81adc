"""Computes the features of many images, and resumes an earlier start that was stopped."""

import hashlib
import json
from collections.abc import Iterator
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
from train.foundation.progress_bar import ImageProgress
from train.prediction import batching, image_files
from train.prediction.embedding import archive, partial_features
from train.prediction.embedding.network import Network
from train.prediction.embedding.partial_features import BATCH_SIZE, PartialFeatures

_ADVICE = "--skip_unreadable leaves such images out"


def embed(network: Network, images: FoundImages, out: Path, *, skip_unreadable: bool) -> None:
    """Writes the features of images to a file, and prints what is in it.

    Few images and features are in memory at a time.

    Args:
        network: computes the features.
        images: the images.
        out: the file.
        skip_unreadable: whether images that cannot be read are left out; otherwise they are an
            error, before the first feature is computed if their first and last bytes show it.

    Raises:
        UserError: an image cannot be read, or its features are not finite.
    """
    identity = _identity(network, images)
    if archive.identity_of(out) == identity:
        if archive.is_whole(out):
            show_line(f"{out} has these features already")
            return
        logging.warning("%s is damaged: its features are computed again", out)
    number, num_features = len(images.listing), network.num_features
    with partial_features.opened(
        out, identity, num_examples=number, num_features=num_features
    ) as partial:
        _complete(partial, network, images, skip_unreadable=skip_unreadable)
        readable = partial.readable
        if not readable.any():
            partial_features.beside(out).unlink()
            raise UserError(f"none of the {number:,} images in {images.root} can be read")
        archive.write(out, identity, images.listing, readable, partial.batches(), num_features)
        partial_features.beside(out).unlink()
    _summarize(out, images.listing, readable, num_features)


def _complete(
    partial: PartialFeatures, network: Network, images: FoundImages, *, skip_unreadable: bool
) -> None:
    """Computes the features that are missing."""
    image_files.ignore_warnings()
    if not (skip_unreadable or partial.readable.all()):
        left_out = images.listing.paths[int(partial.readable.argmin())]
        raise UserError(f"{left_out} cannot be read, and was left out before; {_ADVICE}")
    if not skip_unreadable:
        _check(network, images)
    if partial.done:
        show_line(f"going on after {partial.done:,} of {len(images.listing):,} images")
    batches = _batches(network, images, partial.done, skip_unreadable=skip_unreadable)
    with ImageProgress("embedding", len(images.listing), done=partial.done) as progress:
        for (start, readable), outputs in batching.one_ahead(network.compiled(), batches):
            features = np.asarray(outputs)[: len(readable)]
            not_finite = readable & ~np.isfinite(features).all(axis=1)
            if not_finite.any():
                path = images.listing.paths[start + int(not_finite.argmax())]
                raise UserError(f"the network gives {path} features that are not finite")
            partial.add(readable, features)
            progress.advance(len(readable))


def _check(network: Network, images: FoundImages) -> None:
    """Refuses images that cannot be read, as far as it can be told without decoding all of them."""
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
    network: Network, images: FoundImages, first: int, *, skip_unreadable: bool
) -> Iterator[tuple[tuple[int, np.ndarray], np.ndarray]]:
    """The first index of each batch and which of its images can be read, and their pixels."""
    number = len(images.listing)
    records = _records(network, images)

    def read(index: int) -> np.ndarray | UnreadableImageError:
        try:
            return network.reader.for_evaluation(*records.encoded(index))
        except UnreadableImageError as error:
            return error

    pixels = reading.in_threads(read, range(first, number), ahead=BATCH_SIZE)
    for start in range(first, number, BATCH_SIZE):
        readable = np.ones(min(BATCH_SIZE, number - start), bool)
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
        yield (start, readable), batch


def _identity(network: Network, images: FoundImages) -> str:
    """A hash that changes with the images, their groups, the network or the kind of device."""
    described = [network.digest, images.digest, jax.__version__, jax.default_backend(), BATCH_SIZE]
    if images.listing.has_groups:
        described += images.listing.given_groups()
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
        show_line("labels       none: the images lie in no folders of classes")
    unreadable = [images.paths[index] for index in np.flatnonzero(~readable).tolist()]
    if unreadable:
        show_line(f"left out     unreadable: {messages.in_words(unreadable, 'images')}")
