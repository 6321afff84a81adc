"""Finds images that look alike: copies that were resized, cropped a little or encoded again.

Each image has a perceptual hash of 64 bits, the signs of its lowest frequencies (pHash, Zauner
2010), of a grey copy of 16 x 16 pixels. Its middle has another one, which finds the image in a copy
without the edges. Images whose hashes differ in at most 10 bits are compared by the correlation of
the grey copies.
"""

import functools
from typing import NamedTuple

import numpy as np
from scipy import sparse

from train.data import reading
from train.data.examples import Examples, Split

# The side of a grey copy in pixels.
SIDE = 16
# The columns of the table of `between_splits`.
COLUMNS = ("image", "split", "class", "looks_like", "its_split", "its_class", "correlation")
# The most bits in which the hashes of two near-duplicates differ, and the least correlation: a
# larger one if the hashes differ in more than a few bits.
_MOST_BITS, _FEW_BITS = 10, 6
_LEAST_CORRELATION, _IF_FEW_BITS = 0.95, 0.9
# Copies differ in very few bits. If less than this part of the pairs do, the pairs are different
# images that look alike, such as digits.
_VERY_FEW_BITS, _LEAST_PART = 4, 1 / 6
# Pairs for each image. In data with more, different images look alike, too.
_MOST_PAIRS = 100
# An image with a smaller deviation of its grey values, in steps of 255, has nothing to compare.
_LEAST_CONTRAST = 4.0
# The hashes that a thread compares with others at a time, and these others: they fit in its cache.
_ROWS, _COLUMNS = 32, 4096
_PLACES = np.arange(SIDE)
# The lowest frequencies of each direction.
_COSINES = np.cos(np.pi / SIDE * np.outer(np.arange(8), _PLACES + 0.5)).astype(np.float32)
# What interpolates the pixels of a line: all of it, and without 5 % at each end.
_VIEWS = tuple(
    np.maximum(0, 1 - abs(SIDE * edge + (_PLACES[:, None] + 0.5) * (1 - 2 * edge) - 0.5 - _PLACES))
    for edge in (0, 0.05)
)


class Pairs(NamedTuple):
    """Pairs of images: both indices, int64 [m], of which the second is larger; see `alike`."""

    first: np.ndarray
    second: np.ndarray
    correlation: np.ndarray


class Alike(NamedTuple):
    """Images that look like one of another split.

    Attributes:
        rows: a row of `COLUMNS` for each, with the most similar image of an earlier split.
        line: a sentence about all of them; empty if there are none.
    """

    rows: list[list[str]]
    line: str


def alike(copies: np.ndarray) -> Pairs:
    """The pairs of images that look alike by their grey copies, uint8 [n, SIDE * SIDE].

    Where different images look alike, as digits do, only equal ones are pairs.
    """
    used = np.flatnonzero(copies.std(axis=1, dtype=np.float32) >= _LEAST_CONTRAST)
    copies = copies[used]
    hashes = np.zeros((len(_VIEWS), len(used)), np.uint64)
    for start in range(0, len(used), _COLUMNS):
        some = slice(start, start + _COLUMNS)
        hashes[:, some] = [_hashes(copies[some], view) for view in _VIEWS]
    parts, number = [np.zeros((0, 4))], 0
    compare = functools.partial(_compare, copies, hashes)
    for part in reading.in_threads(compare, range(0, len(used), _ROWS), ahead=2):
        number += len(part)
        if number > _MOST_PAIRS * len(used):
            parts = parts[:1]
            break
        parts.append(part)
    found = np.concatenate(parts)
    if (found[:, 2] <= _VERY_FEW_BITS).sum() < _LEAST_PART * len(found):
        first, second = found[:, :2].astype(np.int64).T
        found = found[(copies[first] == copies[second]).all(axis=1)]
    # Each pair once, with its largest correlation.
    found = found[np.argsort(-found[:, 3])]
    found = found[np.unique(found[:, :2], axis=0, return_index=True)[1]]
    first, second = used[found[:, :2].astype(np.int64)].T
    return Pairs(first, second, found[:, 3])


def clusters(pairs: Pairs, number: int) -> np.ndarray:
    """The cluster of each of a number of images, int32 [n]; pairs connect those of a cluster."""
    edges = (np.ones(len(pairs.first), bool), (pairs.first, pairs.second))
    graph = sparse.coo_array(edges, (number, number))
    found: np.ndarray = sparse.csgraph.connected_components(graph, directed=False)[1]
    return found


def between_splits(examples: Examples, copies: np.ndarray) -> Alike:
    """The images of validation and test that look like one of an earlier split.

    Args:
        examples: the examples, all with a split.
        copies: the grey copy of each, uint8 [n, SIDE * SIDE].
    """
    splits = examples.splits
    best: dict[int, tuple[float, int]] = {}
    for one, other, correlation in zip(*map(np.ndarray.tolist, alike(copies)), strict=True):
        if splits[one] != splits[other]:
            earlier, later = sorted((one, other), key=lambda index: int(splits[index]))
            best[later] = max(best.get(later, (-1.0, -1)), (correlation, earlier))
    if not best:
        return Alike([], "")

    def described(index: int) -> list[str]:
        word = Split(int(splits[index])).word
        return [examples.name(index), word, examples.class_names[examples.labels[index]]]

    rows = [
        [*described(later), *described(earlier), f"{correlation:.3f}"]
        for later, (correlation, earlier) in sorted(best.items())
    ]
    image, _, _, other, *_ = rows[0]
    line = (
        f"near-duplicates: {len(rows):,} of {(splits != Split.TRAIN).sum():,} images of validation "
        f"and test look like an image of another split, such as {image} and {other}, which makes "
        "accuracies too good; --config.dataset.group=near_duplicates keeps them in one split"
    )
    return Alike(rows, line)


def _grey(copies: np.ndarray, view: np.ndarray) -> np.ndarray:
    """The grey values of a view of images with mean 0 and norm 1, float32 [n, SIDE * SIDE]."""
    pixels = view.astype(np.float32) @ copies.reshape(-1, SIDE, SIDE) @ view.T.astype(np.float32)
    grey = pixels.reshape(-1, SIDE * SIDE)
    grey -= grey.mean(axis=1, keepdims=True)
    # The middle may have one colour.
    return grey / np.maximum(np.linalg.norm(grey, axis=1, keepdims=True), 1)


def _hashes(copies: np.ndarray, view: np.ndarray) -> np.ndarray:
    """The hash of a view of each image, uint64 [n]."""
    found = (_COSINES @ _grey(copies, view).reshape(-1, SIDE, SIDE) @ _COSINES.T).reshape(-1, 64)
    # The mean, which comes first, is 0.
    middle = np.median(found[:, 1:], axis=1, keepdims=True)
    return np.packbits(found > middle, axis=1).view(np.uint64)[:, 0]


def _compare(copies: np.ndarray, hashes: np.ndarray, start: int) -> np.ndarray:
    """The pairs of some images with others, [m, 4]: both indices, the bits, and the correlation."""
    parts = [np.zeros((0, 4))]
    for view, of_view in zip(_VIEWS, hashes, strict=True):
        # An image is compared with later ones, and its middle with all.
        is_whole = view is _VIEWS[0]
        rows = of_view[start : start + _ROWS, None]
        for column in range(start if is_whole else 0, len(copies), _COLUMNS):
            bits = np.bitwise_count(rows ^ hashes[0, column : column + _COLUMNS])
            row, place = np.divmod(np.flatnonzero(bits <= _MOST_BITS), bits.shape[1])
            pairs = np.stack([row + start, place + column, bits[row, place]], axis=1)
            pairs = pairs[pairs[:, 0] < pairs[:, 1] if is_whole else pairs[:, 0] != pairs[:, 1]]
            one, other, near = pairs.T
            correlation = (_grey(copies[one], view) * _grey(copies[other], _VIEWS[0])).sum(axis=1)
            is_alike = correlation >= np.where(near <= _FEW_BITS, _IF_FEW_BITS, _LEAST_CORRELATION)
            found = np.column_stack([np.sort(pairs[:, :2], axis=1), near, correlation])
            parts.append(found[is_alike])
    return np.concatenate(parts)
