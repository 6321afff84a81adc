"""One pass over a matrix of features: are they finite, their mean and deviation, a checksum."""

import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from train.foundation.errors import UserError
from train.foundation.stored_rows import StoredRows

# The numbers that a thread looks at together; they fit in its cache.
_CHUNK = 2**18
_MAX_THREADS = 16
_EXPONENT_16 = np.uint16(0x7C00)
# Processors may take smaller numbers of 32 bits for 0, and 0 / 0 is NaN. Improbable classes have
# such probabilities.
_LEAST_DEVIATION = np.finfo(np.float32).tiny


@dataclass(frozen=True)
class Columns:
    """What a pass over the rows finds.

    Attributes:
        mean: of each feature over the training rows, float64 [d].
        std: the standard deviation of each feature over the training rows, float64 [d]; 1 for a
            feature that is the same in all of them, or nearly so: see `_LEAST_DEVIATION`.
        checksums: of all numbers, uint32 [chunks].
    """

    mean: np.ndarray
    std: np.ndarray
    checksums: np.ndarray


def check_finite(features: np.ndarray | StoredRows, where: str) -> None:
    """Refuses features with NaN or infinity, or with another checksum than their file gives.

    Args:
        features: [n, d].
        where: their file in messages.

    Raises:
        UserError: a number is not finite, or the features are damaged.
    """
    checksums = []
    for chunk in _chunks(features):
        part = features[chunk]
        if not _are_finite(part):
            raise _not_finite(features, chunk, where)
        if isinstance(features, StoredRows):
            checksums.append(_checksum(part))
    _check(features, checksums, where)


def summarize(features: np.ndarray | StoredRows, is_training: np.ndarray, where: str) -> Columns:
    """Checks that all features are finite and undamaged; summarizes each over the training rows.

    The result does not depend on the number of threads.

    Args:
        features: [n, d].
        is_training: whether a row is one for training, [n]; some are.
        where: the file of the features in messages.

    Raises:
        UserError: a number is not finite, or the features are damaged.
    """
    # Squares of numbers of 16 bits are summed in 32 bits, squares of numbers of 32 bits in 64.
    wide = np.dtype(f"f{2 * features.dtype.itemsize}")
    # Differences to a row of the data: a feature that is always the same has a deviation of 0.
    first = int(is_training.argmax())
    origin = features[first : first + 1][0].astype(wide)
    count, mean, squares = 0, np.zeros(features.shape[1]), np.zeros(features.shape[1])
    checksums = []

    def look_at(chunk: slice) -> tuple[bool, int, int, np.ndarray, np.ndarray]:
        part = features[chunk]
        checksum = _checksum(part)
        if not _are_finite(part):
            return False, checksum, 0, mean, squares
        differences = part[is_training[chunk]].astype(wide)
        if not len(differences):
            return True, checksum, 0, mean, squares
        differences -= origin
        # In 64 bits: a sum of many numbers that are far from 0 has too few digits left in 32.
        chunk_mean = differences.mean(axis=0, dtype=np.float64)
        differences -= chunk_mean.astype(wide)
        chunk_squares = np.einsum("ij,ij->j", differences, differences)
        return True, checksum, len(differences), chunk_mean, chunk_squares

    threads = min(os.cpu_count() or 1, _MAX_THREADS)
    with ThreadPoolExecutor(threads, thread_name_prefix="features") as executor:
        chunks = list(_chunks(features))
        try:
            for chunk, found in zip(chunks, executor.map(look_at, chunks), strict=True):
                is_finite, checksum, number, chunk_mean, chunk_squares = found
                if not is_finite:
                    raise _not_finite(features, chunk, where)
                checksums.append(checksum)
                if number:
                    # Chan, Golub and LeVeque (1979): the moments of two samples together.
                    difference = chunk_mean - mean
                    mean = mean + difference * (number / (count + number))
                    squares = squares + chunk_squares
                    squares += difference**2 * (count * number / (count + number))
                    count += number
        finally:
            executor.shutdown(cancel_futures=True)
    _check(features, checksums, where)
    std = np.sqrt(squares / count)
    std[std < _LEAST_DEVIATION] = 1
    return Columns(origin + mean, std, np.array(checksums, np.uint32))


def _chunks(features: np.ndarray | StoredRows) -> Iterator[slice]:
    rows = max(1, _CHUNK // features.shape[1])
    return (
        slice(start, min(start + rows, len(features))) for start in range(0, len(features), rows)
    )


def _checksum(part: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(part).view(np.uint8).data)


def _check(features: np.ndarray | StoredRows, checksums: list[int], where: str) -> None:
    """Refuses rows of a file that are not what was written; those in memory were compared."""
    sizes = (chunk.stop - chunk.start for chunk in _chunks(features))
    if isinstance(features, StoredRows) and not features.has_checksum(checksums, sizes):
        raise UserError(f"{where}: the array features is damaged: it has another checksum")


def _are_finite(part: np.ndarray) -> bool:
    if part.dtype == np.float16:
        # All bits of the exponent are set. NumPy's own check takes ten times as long in 16 bits.
        exponents = part.view(np.uint16) & _EXPONENT_16
        return not (exponents == _EXPONENT_16).any()
    return bool(np.isfinite(part).all())


def _not_finite(features: np.ndarray | StoredRows, chunk: slice, where: str) -> UserError:
    part = features[chunk]
    row = int(np.flatnonzero(~np.isfinite(part).all(axis=1))[0])
    column = int(np.flatnonzero(~np.isfinite(part[row]))[0])
    value = part[row, column]
    return UserError(
        f"{where}: features must be finite; row {chunk.start + row}, counted from 0, has {value}"
    )
