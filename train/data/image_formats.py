"""Which files are images, by the suffixes of their names."""

import functools
from pathlib import Path

from PIL import Image, ImageFile

# Pillow recognises the names of these formats, but cannot decode them.
_NO_PICTURES = frozenset({"MPEG"})
# Of cameras and phones: images that Pillow cannot decode.
_UNSUPPORTED = frozenset(
    {".heic", ".heif", ".raw", ".cr2", ".cr3", ".nef", ".arw", ".dng", ".jxl", ".svg", ".psd"}
)


def is_image(name: str) -> bool:
    """Whether a file of that name is an image that Pillow can decode."""
    return Path(name).suffix.lower() in _endings()


def is_unsupported_image(name: str) -> bool:
    """Whether a file of that name is an image that the program cannot read."""
    suffix = Path(name).suffix.lower()
    return suffix in _UNSUPPORTED and suffix not in _endings()


@functools.cache
def _endings() -> frozenset[str]:
    """The suffixes of the formats that Pillow can decode."""
    endings = Image.registered_extensions()
    drawn = {
        name
        for name, (factory, _) in Image.OPEN.items()
        if name not in _NO_PICTURES
        and not (isinstance(factory, type) and issubclass(factory, ImageFile.StubImageFile))
    }
    return frozenset(ending for ending, name in endings.items() if name in drawn)
