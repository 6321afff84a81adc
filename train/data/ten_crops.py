"""Four corners and the middle of images. The evaluation step mirrors them, and has ten crops."""

from collections.abc import Iterator

import numpy as np

# How far right and how far down a crop is, of what there is room for.
POSITIONS = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.5, 0.5))
# An image that has the size of a crop is padded by this part of its height and width, as
# CIFAR-100's images are in training.
_PADDED = 8


def edges(room: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The left and upper edge of each crop.

    Args:
        room: how much wider, and how much higher, the image is than a crop.
    """
    for across, down in POSITIONS:
        # Halves go to the even number, as in torchvision.
        yield round(across * room[0]), round(down * room[1])


def padding(size: tuple[int, int]) -> tuple[int, int]:
    """The columns on either side, and the rows above and below, of an image that is padded.

    Args:
        size: its width and height.
    """
    return size[0] // _PADDED, size[1] // _PADDED


def of_padded(images: np.ndarray) -> np.ndarray:
    """Crops of images that are padded with zeros; the last one is the image itself.

    Args:
        images: [n, height, width, channels].

    Returns:
        [n, 5, height, width, channels].
    """
    height, width = images.shape[1:3]
    across, down = padding((width, height))
    padded = np.pad(images, ((0, 0), (down, down), (across, across), (0, 0)))
    return np.stack(
        [
            padded[:, top : top + height, left : left + width]
            for left, top in edges((2 * across, 2 * down))
        ],
        axis=1,
    )
