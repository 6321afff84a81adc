"""Small pictures for tests of people's own images, each class of one colour and some noise."""

import zlib

import numpy as np
from PIL import Image


def picture(name, *, size=(12, 10), mode="RGB"):
    """A picture whose pixels are a function of its name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    width, height = size
    pixels = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def write(root, paths, draw=picture, **options):
    """Writes a picture to each path below a folder."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        draw(path, **options).save(root / path)


def write_classes(root, classes, each, **options):
    """Writes as many pictures of each class, each class in a folder of its own."""
    write(root, [f"{name}/{index}.png" for name in classes for index in range(each)], **options)
