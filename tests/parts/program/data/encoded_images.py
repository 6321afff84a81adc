"""Image files for tests, which Pillow does not write itself."""

import io
import struct
import zlib

import numpy as np
from PIL import Image


def encode(image, file_format="JPEG", **options):
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def photograph(rng, width, height, channels=3):
    """The pixels of smooth shapes and noise, as in a photograph."""
    coarse = rng.integers(0, 256, (7, 9, channels)).astype(np.uint8)
    shapes = [
        np.asarray(Image.fromarray(plane).resize((width, height), Image.Resampling.BICUBIC))
        for plane in np.moveaxis(coarse, -1, 0)
    ]
    noisy = np.stack(shapes, axis=-1) + rng.normal(scale=12, size=(height, width, channels))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def smooth(seed, size=(50, 40)):
    """A picture of smooth colours."""
    colours = np.random.default_rng(seed).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    return Image.fromarray(colours).resize(size, Image.Resampling.BICUBIC)


def chunk(name, content):
    """A chunk of a PNG file."""
    checked = name + content
    return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))


def png(*, size, bits, colour, rows):
    """A PNG file with these rows of pixels."""
    header = chunk(b"IHDR", struct.pack(">2I5B", *size, bits, colour, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")


def tiff(values, *, bits, kind=1, photometric=1, tags=()):
    """A TIFF file of grey pixels.

    Args:
        values: the pixels [height, width], as they are stored.
        bits: the depth that the file claims.
        kind: 1 for unsigned numbers, 2 for signed ones.
        photometric: 1 if 0 is black, 0 if it is white.
        tags: other tags with a number each.
    """
    height, width = values.shape
    content = values.tobytes()
    found = {256: width, 257: height, 258: bits, 259: 1, 262: photometric, 277: 1, 278: height}
    found |= {279: len(content), 339: kind, **dict(tags)}
    start = 8 + 2 + 12 * (len(found) + 1) + 4
    entries = b"".join(
        struct.pack("<HHII", tag, 4, 1, value)
        for tag, value in sorted({**found, 273: start}.items())
    )
    return b"II*\0" + struct.pack("<IH", 8, len(found) + 1) + entries + bytes(4) + content
