"""Small photographs of observations: two or three alike of each, with its number in their names."""

import zlib

import numpy as np
from PIL import Image

from tests.parts.program.data import pictures

CLASSES = ("ash", "birch", "cedar")
PATTERN = r"(obs\d+)_"


def names(each=8, *, classes=CLASSES):
    """The paths of photographs, with the number of observations of each class."""
    return [
        f"{name}/obs{number * len(classes) + label:03d}_{k}.jpg"
        for label, name in enumerate(classes)
        for number in range(each)
        for k in range(1, 3 + number % 2)
    ]


def observation(path):
    """The observation of a photograph, by its path."""
    return path.rpartition("/")[2].partition("_")[0]


def photograph(path, *, size=(64, 48)):
    """A photograph whose coarse pixels are a function of its observation, and its noise of all."""
    coarse = np.random.default_rng(zlib.crc32(observation(path).encode()))
    fine = np.random.default_rng(zlib.crc32(path.encode()))
    pixels = coarse.integers(0, 256, (6, 8, 3)).astype(np.uint8)
    image = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC), np.int16)
    noise = fine.integers(-20, 21, image.shape)
    return Image.fromarray(np.clip(image + noise, 0, 255).astype(np.uint8))


def write(root, paths):
    """Writes a photograph to each path below a folder."""
    pictures.write(root, paths, draw=photograph)
    return root
