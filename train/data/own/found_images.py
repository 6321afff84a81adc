"""Somebody's own images as they were found: listed, split, and still encoded."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.data.own import image_records, listing
from train.data.own.listing import GivenImages, Listing
from train.foundation.errors import UserError


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
            # Half the time of `Path.read_bytes`, which shows with images of 1 kB.
            # A table may have absolute paths.
            path = os.path.join(self._root, name)  # noqa: PTH118
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123
                return {"image": file.read(), "file_name": name}
        except OSError as error:
            return {"image": b"", "file_name": name, "unreadable": error.strerror}


def find(config: Mapping[str, Any], in_files: Callable[[Path], GivenImages]) -> FoundImages:
    """The images of `config.dataset.path`, in files or in records, with the missing splits.

    Args:
        config: the fields of `config.dataset`.
        in_files: finds images that are no records at the path.

    Raises:
        UserError: they cannot be found, or no classifier can be trained with them.
    """
    path = Path(config["path"]).expanduser().absolute()
    fractions = {"validation": config["validation_fraction"], "test": config["test_fraction"]}
    where = f"config.dataset.path {path}"
    source: Sequence[dict[str, Any]]
    if image_records.are_at(path):
        records = image_records.read(path)
        if config.get("nested", records.nested) != records.nested:
            raise UserError(
                f"config.dataset.nested must be {records.nested}, as the records in {path} were "
                f"prepared; got {config['nested']}"
            )
        files = listing.split(records.images, where, **fractions)
        sizes, source = records.sizes, records.source
    else:
        files = listing.split(in_files(path), where, **fractions)
        sizes = listing.file_sizes(files.root, files.paths)
        source = Files(files.root, files.paths)
    listing.warn_of_duplicates(files, sizes, source)
    return FoundImages(files, source, files.digest(sizes))
