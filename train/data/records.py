"""Examples: images in memory, or records on disk that are decoded when a batch wants them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from train.data.image_reader import ImageReader


@dataclass(frozen=True)
class Records:
    """Encoded images, some or all of a source, in some order.

    Attributes:
        source: the examples, images undecoded: dictionaries with "image" and, for messages,
            optionally "file_name".
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

    def encoded(self, index: int) -> tuple[bytes, str]:
        """The bytes of an image, and its name in messages."""
        in_source = int(self.indices[index])
        example = self.source[in_source]
        file_name = example.get("file_name")
        if isinstance(file_name, bytes):
            file_name = file_name.decode(errors="replace")
        return example["image"], f"{file_name or f'record {in_source}'} of {self.name}"


@dataclass(frozen=True)
class Split:
    """Examples: their labels int32 [n], and their images.

    `images` is an array in memory, uint8 [n, height, width, channels], or the records of a streamed
    data set, whose images are decoded, resized and cropped when a batch wants them.
    """

    images: np.ndarray | Records
    labels: np.ndarray

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.labels)

    def take(self, indices: np.ndarray) -> "Split":
        """Some of the examples."""
        return Split(self.images[indices], self.labels[indices])
