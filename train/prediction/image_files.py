"""Finds the user's image files in folders, and decodes them."""

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image

from train.data.crops import ImageReader
from train.data.images import UnreadableImageError
from train.data.sources import folder as image_folder
from train.foundation import files
from train.foundation.errors import UserError
from train.foundation.names import existing, shown

# In letters. Systems take 255 bytes; backslashes and invisible letters may be beside them.
_LONGEST_NAME = 512


def find(named: Sequence[str]) -> list[Path]:
    """The files that the values of --images name, in their order; some may not be images.

    A folder stands for all images in it and its subfolders, sorted by path; see `folder.find`. A
    file that is named directly may have any name.

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


def read(path: Path, reader: ImageReader) -> Image.Image:
    """The image in RGB; the first frame of an animation.

    Args:
        path: the file.
        reader: decodes it.

    Raises:
        UnreadableImageError: the file cannot be read, is a pipe or a device, is not an image, is
            incomplete, or is so large that it may be meant to fill the memory.
    """
    try:
        encoded = files.read_bounded(path)
    except OSError as error:
        raise UnreadableImageError(f"cannot read {path}: {error.strerror}") from error
    return reader.decode(encoded, str(path))


def ignore_warnings() -> None:
    """Hides Pillow's warnings about damaged and large files: if they matter, we raise errors.

    Call it before the program reads images, because all threads share the filters.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)


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
    images = image_folder.find(folder, labelled=False, field="--images")
    return [folder / images.name(index) for index in range(len(images))]
