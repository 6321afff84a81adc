"""Finds images that look alike: copies that were resized, cropped a little or encoded again.

Each image has a perceptual hash of 64 bits, the signs of its lowest frequencies (pHash, Zauner
2010), of a grey copy of 16 x 16 pixels. Images whose hashes differ in at most 10 bits are compared
by the correlation of these copies. In the 6e9 pairs of 110,000 photographs of Tiny ImageNet, 30
pairs are found; one of these has different photographs. benchmarks/README.md has how many copies
are found.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from train.data.own.thumbnails import SIDE
from train.foundation import reading

# The most bits in which the hashes of two near-duplicates differ, and the least correlation: a
# larger one if the hashes differ in more than a few bits.
_MOST_BITS, _FEW_BITS = 10, 6
_LEAST_CORRELATION, _IF_FEW_BITS = 0.95, 0.9
# At least a third of copies are this many bits, or more, below the most.
_FAR_FEWER = 6
# Frequencies of each direction in a hash.
_FREQUENCIES = 8
# An image with a smaller deviation of its grey values, in steps of 255, has nothing to compare.
_LEAST_CONTRAST = 4.0
# The hashes that a thread compares with others at a time, and these others: they fit in its cache.
_ROWS, _COLUMNS = 64, 8192
# Pairs for each image; in data with more, different images look alike.
_MOST_PAIRS = 100


@dataclass(frozen=True)
class Pairs:
    """Pairs of near-duplicates.

    Attributes:
        first: the index of an image of each pair, int64 [m].
        second: the index of the other one, which is larger, int64 [m].
        correlation: of their grey values, float32 [m].
    """

    first: np.ndarray
    second: np.ndarray
    correlation: np.ndarray

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.first)

    def take(self, chosen: np.ndarray) -> "Pairs":
        """Some of the pairs."""
        return Pairs(self.first[chosen], self.second[chosen], self.correlation[chosen])

    def clusters(self, number: int) -> np.ndarray:
        """The cluster of each image, int32 [n]; pairs connect the images of a cluster."""
        edges = sparse.coo_array(
            (np.ones(len(self), bool), (self.first, self.second)), (number, number)
        )
        clusters: np.ndarray = sparse.csgraph.connected_components(edges, directed=False)[1]
        return clusters


_NONE = Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))


def find(copies: np.ndarray) -> Pairs:
    """The pairs of near-duplicates; none if different images of the data look alike, as digits do.

    Args:
        copies: the grey copies of the images, uint8 [n, SIDE * SIDE].
    """
    grey = copies.astype(np.float32)
    grey -= grey.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(grey, axis=1)
    used = np.flatnonzero(norms >= _LEAST_CONTRAST * SIDE)
    grey = grey[used] / norms[used, None]
    hashes = _hashes(grey)
    compare = functools.partial(_compare, hashes, grey)
    starts = range(0, len(used), _ROWS)
    parts: list[np.ndarray] = [np.zeros((0, 4), np.float32)]
    number = 0
    for part in reading.in_threads(compare, starts, ahead=16):
        number += len(part)
        if number > _MOST_PAIRS * len(copies):
            return _NONE
        parts.append(part)
    found = np.concatenate(parts)
    bits = found[:, 2]
    most = _bound(bits)
    found = found[bits <= most]
    first, second = (used[found[:, column].astype(np.int64)] for column in (0, 1))
    return Pairs(first, second, found[:, 3])


def _hashes(grey: np.ndarray) -> np.ndarray:
    """The hash of each image, uint64 [n]."""
    frequencies, places = np.arange(_FREQUENCIES)[:, None], np.arange(SIDE)[None]
    cosines = np.cos(np.pi * frequencies * (2 * places + 1) / (2 * SIDE)).astype(np.float32)
    pixels = grey.reshape(-1, SIDE, SIDE)
    found = (cosines @ pixels @ cosines.T).reshape(-1, _FREQUENCIES**2)
    # The mean, which comes first, is 0.
    middle = np.median(found[:, 1:], axis=1, keepdims=True)
    return np.packbits(found > middle, axis=1).view(np.uint64)[:, 0]


def _compare(hashes: np.ndarray, grey: np.ndarray, start: int) -> np.ndarray:
    """The pairs of some images with later ones: both indices, the bits, and the correlation.

    Returns:
        [m, 4], float64.
    """
    rows = hashes[start : start + _ROWS, None]
    parts = [np.zeros((0, 4))]
    for column in range(start, len(hashes), _COLUMNS):
        bits = np.bitwise_count(rows ^ hashes[None, column : column + _COLUMNS])
        first, second = np.nonzero(bits <= _MOST_BITS)
        near = bits[first, second]
        first, second = first + start, second + column
        is_later = second > first
        first, second, near = first[is_later], second[is_later], near[is_later]
        for chosen in _chunks(len(first)):
            one, other = first[chosen], second[chosen]
            correlation = np.einsum("ij,ij->i", grey[one], grey[other])
            least = np.where(near[chosen] <= _FEW_BITS, _IF_FEW_BITS, _LEAST_CORRELATION)
            found = np.stack([one, other, near[chosen], correlation], axis=1)
            parts.append(found[correlation >= least])
    return np.concatenate(parts)


def _chunks(number: int) -> Iterator[slice]:
    return (slice(start, start + _COLUMNS) for start in range(0, number, _COLUMNS))


def _bound(bits: np.ndarray) -> int:
    """The most bits of near-duplicates, if pairs differ in `bits`; -1 for no pairs.

    Copies differ in few bits. If most pairs are near the bound, more are beyond it: they are
    different images that look alike, such as digits, and the bound is lowered.
    """
    for most in range(_MOST_BITS, _FAR_FEWER - 1, -2):
        if (bits <= most - _FAR_FEWER).sum() >= (bits <= most).sum() / 3:
            return most
    return -1
