"""Which files are images, by their names."""

import functools
import os.path

from PIL import Image, ImageFile

# Pillow recognises the names of these formats, but cannot decode them, or has Ghostscript run what
# is in them.
_NO_PICTURES = frozenset({"EPS", "MPEG"})
# Read with the package pillow-heif, which may not be installed.
_HEIC = frozenset({".heic", ".heics", ".heif", ".heifs", ".hif"})
# Raw photographs of cameras. Many are TIFF files, and Pillow would read a small preview of these.
_RAW = frozenset(
    {
        *(".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".iiq", ".kdc", ".mef"),
        *(".mos", ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2"),
        *(".srf", ".srw", ".x3f"),
    }
)
# Other images that are not decoded.
_UNSUPPORTED = frozenset({".eps", ".jxl", ".ps", ".svg", ".psd"})
# Other files in a folder of images: texts, tables, and notes of programs and cameras.
_SIDE_FILES = frozenset(
    {
        *(".txt", ".md", ".rst", ".log", ".html", ".htm", ".csv", ".tsv", ".tab", ".parquet"),
        *(".json", ".jsonl", ".xml", ".yaml", ".yml", ".toml", ".ini", ".db", ".xmp", ".aae"),
        *(".thm", ".pp3", ".dop", ".md5", ".sha1", ".sha256"),
    }
)


def is_image(name: str) -> bool:
    """Whether a file of that name is an image, also of a format that cannot be read."""
    ending = _ending(name)
    return ending in _endings() or ending in _HEIC or ending in _RAW or ending in _UNSUPPORTED


def is_side_file(name: str) -> bool:
    """Whether a file of that name is one of those that are often found beside images."""
    return _ending(name) in _SIDE_FILES


def why_unreadable(name: str) -> str | None:
    """Why an image of that name cannot be read, whatever is in the file; None if it may be."""
    ending = _ending(name)
    if ending in _RAW:
        return "raw photographs of cameras cannot be read; convert it to JPEG or PNG"
    if ending in _UNSUPPORTED and ending not in _endings():
        return f"{ending[1:].upper()} images cannot be read; convert it to JPEG or PNG"
    return None


def _ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()  # noqa: PTH122 (a path takes as long as a small image)


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
