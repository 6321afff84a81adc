"""Records of images, which `train.prepare` writes from a folder or a table: read, not decoded."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from array_record.python.array_record_data_source import ArrayRecordDataSource

from train.data.own.listing import GivenImages, Role
from train.foundation import files
from train.foundation.errors import UserError, first_line

# The bytes of each image file.
RECORDS = "images.array_record"
# What else is known of them; a folder that has it is whole.
DESCRIPTION = "images.json"
_VERSION = 1


@dataclass(frozen=True)
class ImageRecords:
    """The images of a folder of records.

    Attributes:
        images: their names, classes and splits.
        sizes: the bytes of each, int64 [n].
        source: the images, as the examples of `Records`.
        nested: whether each folder with images was a class.
    """

    images: GivenImages
    sizes: np.ndarray
    source: Sequence[dict[str, Any]]
    nested: bool

    def is_of(self, images: GivenImages, *, nested: bool) -> bool:
        """Whether these are records of some images, as far as all but their pixels tell."""
        described = describe(images, images.sizes(), nested=nested)
        return describe(self.images, self.sizes, nested=self.nested) == described


class _Source(Sequence[dict[str, Any]]):
    """The records as the examples of `Records`; sent to the processes that decode."""

    def __init__(self, folder: Path, paths: tuple[str, ...]) -> None:
        self._folder = folder
        self._paths = paths
        self._records = ArrayRecordDataSource(str(folder / RECORDS))

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        try:
            encoded = self._records[int(index)]
        except Exception as error:  # A damaged file can make the reader raise anything.
            raise _damaged(self._folder, error) from error
        return {"image": encoded, "file_name": self._paths[index]}


def are_at(path: Path) -> bool:
    """Whether a path is that of a folder of records."""
    return (path / DESCRIPTION).is_file()


def describe(images: GivenImages, sizes: np.ndarray, *, nested: bool) -> bytes:
    """The content of the description; see `ImageRecords`."""
    return files.to_json(
        {
            "version": _VERSION,
            "nested": nested,
            "class_names": images.class_names,
            "given": sorted(role.name for role in images.given),
            "paths": images.paths,
            "keys": images.keys,
            "labels": images.labels,
            "roles": images.roles,
            "sizes": sizes,
        }
    )


def read(folder: Path) -> ImageRecords:
    """Opens a folder of records.

    Raises:
        UserError: it is damaged, or of another version of the program.
    """
    try:
        described = json.loads((folder / DESCRIPTION).read_bytes())
        if described["version"] != _VERSION:
            raise UserError(
                f"the records in {folder} are of another version of the program; prepare them again"
            )
        paths = tuple(described["paths"])
        images = GivenImages(
            folder,
            paths,
            np.array(described["labels"], np.int32),
            np.array(described["roles"], np.int8),
            frozenset(Role[name] for name in described["given"]),
            tuple(described["keys"]),
            tuple(described["class_names"]),
        )
        sizes = np.array(described["sizes"], np.int64)
        source = _Source(folder, paths)
        if not len(paths) == len(source) == len(sizes) == len(images.labels) == len(images.roles):
            raise ValueError(f"{RECORDS} has {len(source)} records of {len(paths)} images")
    except UserError:
        raise
    except Exception as error:  # A damaged file can make the readers raise anything.
        raise _damaged(folder, error) from error
    return ImageRecords(images, sizes, source, bool(described["nested"]))


def _damaged(folder: Path, error: Exception) -> UserError:
    return UserError(
        f"the records in {folder} are damaged ({first_line(error)}); delete the folder and prepare "
        "them again"
    )
