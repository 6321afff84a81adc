"""Metadata of image files: removed, or read if they describe the pixels."""

import struct
import zlib
from collections.abc import Iterator

from PIL import ExifTags, TiffTags

_PNG = b"\x89PNG\r\n\x1a\n"
# The bytes of a chunk beside its content: the length and the name before it, the CRC-32 after it.
_BEFORE, _AFTER = 8, 4
# How the numbers of a TIFF file are stored, by its first bytes.
_TIFF_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
# The bytes of an entry for a tag, and of the offset after all of them.
_ENTRY, _NEXT = 12, 4
# Tags that the pixels of a TIFF file depend on, and the orientation, which is one number.
_TIFF_PIXELS = frozenset(
    {
        *(254, 255, 256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 280, 281, 284, 292, 293),
        *(317, 320, 322, 323, 324, 325, 332, 334, 338, 339, 340, 341, 347),
        *(512, 513, 514, 515, 517, 518, 519, 520, 521, 529, 530, 531, 532),
    }
)


def without_metadata(encoded: bytes) -> bytes:
    """A PNG or TIFF file without texts, colour profiles and all else that its pixels do not need.

    The orientation stays if it can be read. A file of another format is returned as it is: Pillow
    reads the pixels whatever the metadata are.
    """
    if encoded.startswith(_PNG):
        return _png_without(encoded)
    if encoded[:4] in _TIFF_ORDERS:
        return _tiff_without(encoded)
    return encoded


def significant_bits(png: bytes) -> int | None:
    """The bits of a sample that were measured, by the chunk sBIT; None without one."""
    for name, start, end in _chunks(png):
        if name == b"sBIT" and _is_whole(png[start:end]) and end - start > _BEFORE + _AFTER:
            return png[start + _BEFORE]
        if name == b"IDAT":
            break
    return None


def _png_without(encoded: bytes) -> bytes:
    kept = bytearray(_PNG)
    for name, start, end in _chunks(encoded):
        chunk = encoded[start:end]
        # The case of the first letter shows whether a chunk is metadata. tRNS, the transparency, is
        # kept.
        if not name[:1].islower() or name == b"tRNS" or (name == b"eXIf" and _is_whole(chunk)):
            kept += chunk
    return bytes(kept)


def _tiff_without(encoded: bytes) -> bytes:
    """The file with fewer tags for its first picture; everything else keeps its place."""
    order = _TIFF_ORDERS[encoded[:4]]
    try:
        (first,) = struct.unpack_from(f"{order}I", encoded, 4)
        (number,) = struct.unpack_from(f"{order}H", encoded, first)
    except struct.error:
        return encoded
    start = first + 2
    end = start + number * _ENTRY
    entries = [encoded[place : place + _ENTRY] for place in range(start, end, _ENTRY)]
    kept = [one for one in entries if _tag(order, one) in _TIFF_PIXELS]
    table = b"".join([struct.pack(f"{order}H", len(kept)), *kept])
    return encoded[:first] + table.ljust(end + _NEXT - first, b"\0") + encoded[end + _NEXT :]


def _tag(order: str, entry: bytes) -> int | None:
    """The tag of an entry; None for an orientation that is not one number of 16 bits."""
    if len(entry) < _ENTRY:
        return None
    tag, kind, count = struct.unpack_from(f"{order}HHI", entry)
    is_orientation = tag == ExifTags.Base.Orientation
    return None if is_orientation and (kind, count) != (TiffTags.SHORT, 1) else int(tag)


def _chunks(png: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The name of each chunk, and where it starts and ends; the last one may be cut off."""
    start = len(_PNG)
    while start + _BEFORE <= len(png):
        length, name = struct.unpack_from(">I4s", png, start)
        end = start + _BEFORE + length + _AFTER
        yield name, start, end
        start = end


def _is_whole(chunk: bytes) -> bool:
    """Whether the checksum of a chunk is right."""
    return zlib.crc32(chunk[4:-_AFTER]) == int.from_bytes(chunk[-_AFTER:])
