"""Somebody's own images as they were found: listed, split, and still encoded."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.data.own import listing
from train.data.own.listing import Listing


@dataclass(frozen=True)
class FoundImages:
    """Images with their classes and splits.

    Attributes:
        listing: their names, classes and splits.
        source: the images, in the order of the list, as `Records` takes them.
        digest: a text that is another for other images, labels or splits.
    """

    listing: Listing
    source: Sequence[dict[str, Any]]
    digest: str


class Files(Sequence[dict[str, Any]]):
    """Image files as the examples of `Records`."""

    def __init__(self, root: Path, paths: tuple[str, ...]) -> None:
        self._root = root
        self._paths = paths

    def __len__(self) -> int:
        """The number of files."""
        return len(self._paths)

    def __getitem__(self, index: Any) -> Any:
        """The bytes of a file and its name; if it cannot be read, no bytes and the reason."""
        name = self._paths[index]
        try:
            return {"image": (self._root / name).read_bytes(), "file_name": name}
        except OSError as error:
            return {"image": b"", "file_name": name, "unreadable": error.strerror}


def in_files(files: Listing) -> FoundImages:
    """The images of a list of files, which are read where they lie."""
    sizes = files.sizes()
    listing.warn_of_duplicates(files, sizes)
    return FoundImages(files, Files(files.root, files.paths), files.digest(sizes))
