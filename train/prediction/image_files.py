"""Finds the user's image files in folders, and reads them as the classifier expects them."""

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from train.data import DatasetSpec, image_formats, images
from train.data.image_reader import ImageReader
from train.data.images import UnreadableImageError
from train.data.side_files import PassedOver, is_hidden
from train.foundation import files
from train.foundation.errors import UserError
from train.foundation.names import existing, shown

# In letters. Systems take 255 bytes; backslashes and invisible letters may be beside them.
_LONGEST_NAME = 512


def find(named: Sequence[str]) -> list[Path]:
    """The files that the values of --images name, in their order; some may be no images.

    A folder stands for all files in it and its subfolders, sorted by path. Hidden files and folders
    are skipped, as are folders of other programs and files that are often found beside images, such
    as texts and tables. Links to folders are not followed. A file that is named directly may have
    any name.

    Args:
        named: paths of files or folders; one value may have several, separated by commas.

    Raises:
        UserError: a path does not exist, or there is no file at all.
    """
    found: list[Path] = []
    for path in (existing(path) for value in named for path in _paths(value)):
        found += _files_below(path) if path.is_dir() else [path]
    if not found:
        raise UserError(
            f"--images must name image files, or folders with some; there are none in "
            f"{', '.join(named)}"
        )
    return found


def read(
    path: Path, reader: ImageReader | None, most_bytes: int = files.MOST_IMAGE_BYTES
) -> Image.Image:
    """The image in RGB; the first frame of an animation.

    Args:
        path: the file.
        reader: the reader of the data set of the classifier, if it has one.
        most_bytes: the largest size of the file.

    Raises:
        UnreadableImageError: the file cannot be read, is a pipe or a device, is not an image, is
            incomplete, or is so large that it may be meant to fill the memory.
    """
    if why := image_formats.why_unreadable(path.name):
        raise UnreadableImageError(f"cannot read {path}: {why}")
    try:
        encoded = files.read_bounded(path, most_bytes)
    except OSError as error:
        raise UnreadableImageError(f"cannot read {path}: {error.strerror}") from error
    return decode(encoded, str(path), reader)


def decode(encoded: bytes, name: str, reader: ImageReader | None) -> Image.Image:
    """The image of a file's bytes, as `read` gives it; `name` is its name in messages.

    Raises:
        UnreadableImageError: it is not an image, or not all of one.
    """
    if reader is not None:
        return reader.decode(encoded, name)
    # A photograph from a phone is often stored on its side.
    return images.turned_upright(images.decode(encoded, name))


def ignore_warnings() -> None:
    """Hides Pillow's warnings about damaged and large files: where they matter, we raise errors.

    To be called where the program begins with images, because all threads share the filters.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)


def to_input(image: Image.Image, spec: DatasetSpec, name: str) -> np.ndarray:
    """The input of the classifier for an image: uint8 of the data set's image shape.

    For a data set of photographs this is its test transform. For a data set of small images, the
    image is resized with antialiasing to just cover their shape, and its centre is cropped.

    Args:
        image: in RGB.
        spec: the data set of the classifier.
        name: the name of the image in messages.

    Raises:
        UnreadableImageError: the image is too long and narrow to be resized.
    """
    if spec.reader is not None:
        return spec.reader.fit(image, name)
    assert spec.image_shape is not None
    height, width, channels = spec.image_shape
    images.check_resizable(image.size, min(height, width), name)
    if channels == 1:
        image = image.convert("L")
    scale = max(height / image.height, width / image.width)
    size = (max(width, round(image.width * scale)), max(height, round(image.height * scale)))
    if size != image.size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    cut = np.asarray(image.crop((left, top, left + width, top + height)))
    return cut.reshape(spec.image_shape)


def _paths(value: str) -> Iterator[Path]:
    """The paths in a value. A comma separates two, unless a file has it in its name."""
    parts = value.split(",")
    start = 0
    while start < len(parts):
        count = _parts_of_path(parts[start:])
        if count == 0:
            raise UserError(
                "--images must name image files or folders; there is no "
                f"{shown(parts[start]) or repr(value)}"
            )
        yield Path(",".join(parts[start : start + count]))
        start += count


def _parts_of_path(parts: Sequence[str]) -> int:
    """How many of the first parts make the longest path that exists; 0 if none exists."""
    found, path = 0, ""
    for count, part in enumerate(parts, start=1):
        path = part if count == 1 else f"{path},{part}"
        folder, _, name = path.rpartition("/")
        # No longer path exists then.
        if len(name) > _LONGEST_NAME or (folder and not _exists(folder)):
            break
        if _exists(path):
            found = count
    return found


def _exists(path: str) -> bool:
    # The empty text would be the working directory. Path.exists raises on a long name.
    return path != "" and os.path.exists(existing(Path(path)))  # noqa: PTH110


def _files_below(folder: Path) -> list[Path]:
    found, passed = [], PassedOver()
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        # Changed in place, so that the walk skips hidden folders and those of other programs.
        folders[:] = [name for name in folders if not passed.is_passed(name)]
        found += [
            Path(parent, name)
            for name in names
            if not (is_hidden(name) or image_formats.is_side_file(name))
        ]
    passed.tell(folder)
    return sorted(found)


def _refuse(error: OSError) -> None:
    """Raises the error for a folder that cannot be read; `os.walk` would skip it."""
    raise error
