"""Examples: images in memory, records that are decoded when a batch wants them, or features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from train.data import image_formats
from train.data.credits import Credits
from train.data.crops import ImageReader
from train.data.images import UnreadableImageError
from train.data.truths import Truths
from train.foundation.stored_rows import StoredRows


@dataclass(frozen=True)
class Records:
    """Encoded images, some or all of a source, in some order.

    Attributes:
        source: the examples, images undecoded: dictionaries with "image" and, for messages,
            optionally "file_name"; if the file of an image cannot be read, with the reason as
            "unreadable".
        indices: the indices of the chosen examples in `source`, [n].
        name: the name of the source in messages.
        reader: makes pixels of them.
    """

    source: Sequence[dict[str, Any]]
    indices: np.ndarray
    name: str
    reader: ImageReader

    def __len__(self) -> int:
        """The number of chosen examples."""
        return len(self.indices)

    def __getitem__(self, chosen: np.ndarray) -> "Records":
        """Some of the chosen examples."""
        return Records(self.source, self.indices[chosen], self.name, self.reader)

    def file_name(self, index: int) -> str:
        """The name of an image in its source; its number if it does not have a name."""
        in_source = int(self.indices[index])
        return _file_name(self.source[in_source], in_source)

    def encoded(self, index: int) -> tuple[bytes, str]:
        """The bytes of an image, and its name in messages.

        Raises:
            UnreadableImageError: its file cannot be read, or is of a format that cannot.
        """
        in_source = int(self.indices[index])
        example = self.source[in_source]
        name_in_source = _file_name(example, in_source)
        name = f"{name_in_source} of {self.name}"
        why = example.get("unreadable") or image_formats.why_unreadable(name_in_source)
        if why:
            raise UnreadableImageError(f"cannot read {name}: {why}")
        return example["image"], name


def _file_name(example: Mapping[str, Any], index: int) -> str:
    found = example.get("file_name")
    if isinstance(found, bytes):
        found = found.decode(errors="replace")
    return str(found or f"record {index}")


@dataclass(frozen=True)
class Rows:
    """Rows of a matrix of features, which are copied when a batch wants them.

    Attributes:
        matrix: the features [n, d] of all splits; many stay in their file.
        indices: the indices of the chosen rows in `matrix`, [m].
    """

    matrix: np.ndarray | StoredRows
    indices: np.ndarray

    def __len__(self) -> int:
        """The number of chosen rows."""
        return len(self.indices)

    def __getitem__(self, chosen: np.ndarray) -> "Rows":
        """Some of the chosen rows."""
        return Rows(self.matrix, self.indices[chosen])

    def to_array(self) -> np.ndarray:
        """The chosen rows, copied, [m, d]."""
        return self.matrix[self.indices]


def gather(examples: np.ndarray | Rows, chosen: np.ndarray) -> np.ndarray:
    """Some images or rows of features, which need not be decoded."""
    if isinstance(examples, Rows):
        return examples[chosen].to_array()
    return examples.take(chosen, axis=0)


@dataclass(frozen=True)
class Split:
    """Examples: their labels int32 [n], and their images or features.

    `images` is an array in memory, uint8 images [n, height, width, channels] or features [n, d], or
    the records of a streamed data set, whose images are decoded, resized and cropped when a batch
    wants them, or rows of features.

    `names` [n] are the names of the examples, as the paths of files, and `groups` [n] the names of
    what they belong to, as the photographs of one plant do; both are texts, and None if the data
    set has none. `truths` [n] are what the labels stand for if the truth of an example is more than
    one class; else None. `credits` [n] are the authors and the licences of the images; None if the
    data set has none.
    """

    images: np.ndarray | Records | Rows
    labels: np.ndarray
    names: np.ndarray | None = None
    groups: np.ndarray | None = None
    truths: Truths | None = None
    credits: Credits | None = None

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.labels)

    def take(self, indices: np.ndarray) -> "Split":
        """Some of the examples."""
        names, groups = (
            None if texts is None else texts[indices] for texts in (self.names, self.groups)
        )
        truths = None if self.truths is None else self.truths[indices]
        credited = None if self.credits is None else self.credits[indices]
        return Split(self.images[indices], self.labels[indices], names, groups, truths, credited)

    def credit(self, index: int) -> str:
        """The author and the licence of an image; empty if neither is known."""
        return "" if self.credits is None else self.credits.in_words(index)

    def truth(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """The labels of some examples, with what they stand for, as arrays of a batch."""
        rows = {} if self.truths is None else self.truths.arrays(indices)
        return {"labels": self.labels[indices], **rows}
