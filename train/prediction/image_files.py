"""A person's image files: found in folders, and read as the classifier was trained to see them.

One thing is not done as in training: a photograph is turned the way that its EXIF orientation asks
for. Training turns none, for reasons told in `train.data.images`, but the pictures there stand
upright with few exceptions, and a phone's photograph without its rotation lies on its side.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile, ImageOps

from train.data import DatasetSpec, images
from train.data.images import UnreadableImageError
from train.foundation.errors import UserError

# Pillow recognises these by their names and cannot draw them: a video, or a table of numbers.
_NO_PICTURES = frozenset({"MPEG"})


def find(named: Sequence[str]) -> list[Path]:
    """The image files that the values of --images name, in their order.

    A folder stands for the files in it and in the folders below whose names end as those of a
    format that Pillow reads, sorted by path. What is hidden is passed over, and links to folders
    are not followed. A file that is named itself is one of them, whatever its name.

    Args:
        named: each the path of a file or a folder, or several with commas between.

    Raises:
        UserError: there is no such path, or no image at all.
    """
    found: list[Path] = []
    for path in (path for value in named for path in _paths(value)):
        found += _images_below(path) if path.is_dir() else [path]
    if not found:
        raise UserError(
            f"--images must name image files, or folders with some; there are none in "
            f"{', '.join(named)}"
        )
    return found


def read(path: Path) -> Image.Image:
    """The picture in RGB and upright; of an animation, the first frame.

    Raises:
        UnreadableImageError: it cannot be read, is no image or not all of one, or is so large that
            it may have been made to fill the memory.
    """
    try:
        encoded = path.read_bytes()
    except OSError as error:
        raise UnreadableImageError(f"cannot read {path}: {error.strerror}") from error
    image = images.decode(encoded, str(path))
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # Whatever damaged EXIF makes Pillow raise; the picture itself is whole.
        return image


def to_input(image: Image.Image, spec: DatasetSpec, name: str) -> np.ndarray:
    """What the classifier gets of a picture: uint8 of the data set's image shape.

    For a data set of photographs it is their test transform. For one of small images the shorter
    side is brought to theirs, with antialiasing, and the middle is cut out.

    Args:
        image: in RGB.
        spec: the data set of the classifier.
        name: what a message calls the picture.

    Raises:
        UnreadableImageError: it is so long and narrow that it cannot be resized.
    """
    height, width, channels = spec.image_shape
    shorter = images.SHORTER_SIDE if spec.streamed else min(height, width)
    enlarged = max(image.size) * shorter**2 // min(image.size)
    if enlarged > _most_pixels():
        raise UnreadableImageError(
            f"{name} is too long and narrow, {image.width} x {image.height} pixels: with its "
            f"shorter side at {shorter} it would have {enlarged:,}"
        )
    if spec.streamed:
        return images.center_crop(image)
    if channels == 1:
        image = image.convert("L")
    scale = max(height / image.height, width / image.width)
    size = (max(width, round(image.width * scale)), max(height, round(image.height * scale)))
    if size != image.size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    cut = np.asarray(image.crop((left, top, left + width, top + height)))
    return cut.reshape(spec.image_shape)


def _most_pixels() -> int:
    """Where Pillow refuses to decode a picture."""
    return 2 * (Image.MAX_IMAGE_PIXELS or 2**30)


def _paths(value: str) -> Iterator[Path]:
    """The paths in a value; a comma separates two unless it is in the name of what is there."""
    parts = value.split(",")
    start = 0
    while start < len(parts):
        ends = range(len(parts), start, -1)
        end = next((end for end in ends if _exists(",".join(parts[start:end]))), None)
        if end is None:
            raise UserError(
                f"--images must name image files or folders; there is no {parts[start] or value!r}"
            )
        yield Path(",".join(parts[start:end]))
        start = end


def _exists(path: str) -> bool:
    # The empty text would be the working directory.
    return path != "" and os.path.exists(path)  # noqa: PTH110 (Path.exists raises on a long name)


def _images_below(folder: Path) -> list[Path]:
    endings = _endings()
    found = []
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        # Changed in place, it keeps the walk out of hidden folders.
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(parent, name)
            for name in names
            if not name.startswith(".") and Path(name).suffix.lower() in endings
        ]
    return sorted(path for path in found if path.is_file())


def _refuse(error: OSError) -> None:
    """A folder that may not be looked into is not taken for an empty one."""
    raise error


def _endings() -> frozenset[str]:
    """The endings of the formats that Pillow can draw."""
    endings = Image.registered_extensions()
    drawn = {
        name
        for name, (factory, _) in Image.OPEN.items()
        if name not in _NO_PICTURES
        and not (isinstance(factory, type) and issubclass(factory, ImageFile.StubImageFile))
    }
    return frozenset(ending for ending, name in endings.items() if name in drawn)
