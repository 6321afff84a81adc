"""The CRC-32 of bytes from the CRC-32s of their parts, which several threads can compute.

A CRC is the remainder of a polynomial over the bits modulo P. The remainder of two parts, one after
the other, is the first remainder times x^(8 n) plus the second one, where n is the number of bytes
of the second part. zlib has this function, and Python does not expose it.
"""

import functools
from collections.abc import Iterable

# The polynomial P without x^32. The highest bit is the coefficient of x^0.
_P = 0xEDB88320
_ONE = 1 << 31
# x^8
_BYTE = _ONE >> 8


def combined(parts: Iterable[tuple[int, int]]) -> int:
    """The CRC-32 of parts one after another, each given by its CRC-32 and its size."""
    crc = 0
    for part, size in parts:
        crc = _times(_shift(size), crc) ^ part
    return crc


def _times(one: int, other: int) -> int:
    """The product of two polynomials modulo P."""
    product = 0
    while one:
        if one & _ONE:
            product ^= other
        one = one << 1 & 0xFFFFFFFF
        other = other >> 1 ^ (_P if other & 1 else 0)
    return product


@functools.lru_cache(maxsize=8)
def _shift(size: int) -> int:
    """x^(8 size) modulo P."""
    power, square = _ONE, _BYTE
    while size:
        if size & 1:
            power = _times(power, square)
        square = _times(square, square)
        size >>= 1
    return power
