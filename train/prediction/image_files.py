"""Finds the image files that the user names."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from train.data.sources import folder as image_folder
from train.foundation.errors import UserError
from train.foundation.names import existing, shown


def find(named: Sequence[str]) -> list[Path]:
    """The files that the values of --images name, in their order; some may not be images.

    A folder stands for all images in it and its subfolders, sorted by path; see `folder.find`. A
    file that is named directly may have any name.

    Args:
        named: paths of files or folders; a value that is no path may have several, separated by
            commas.

    Raises:
        UserError: a path does not exist, or there is no file at all.
    """
    found: list[Path] = []
    for value in named:
        for text in [value] if _exists(value) else value.split(","):
            if not _exists(text):
                must_be, got = "image files or folders", shown(text) or repr(value)
                raise UserError(f"--images must name {must_be}; there is no {got}")
            path = existing(Path(text))
            found += _files_below(path) if path.is_dir() else [path]
    return found


def ignore_warnings() -> None:
    """Hides Pillow's warnings about damaged and large files: if they matter, we raise errors.

    Call it before the program reads images, because all threads share the filters.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)


def _exists(path: str) -> bool:
    # The empty text would be the working directory. Path.exists raises on a long name.
    return path != "" and os.path.exists(existing(Path(path)))  # noqa: PTH110


def _files_below(folder: Path) -> list[Path]:
    images = image_folder.find(folder, labelled=False, field="--images")
    return [folder / images.name(index) for index in range(len(images))]
