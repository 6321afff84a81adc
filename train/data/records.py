"""Examples: images in memory, or records on disk that are decoded when a batch wants them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Records:
    """Encoded images of a prepared split, some or all, in some order.

    Attributes:
        source: the examples of the prepared split by their number, images undecoded.
        places: the numbers of the chosen examples, [n].
        name: what messages call the prepared split.
    """

    source: Sequence[dict[str, Any]]
    places: np.ndarray
    name: str

    def __len__(self) -> int:
        """The number of chosen examples."""
        return len(self.places)

    def __getitem__(self, chosen: np.ndarray) -> "Records":
        """Those examples of them."""
        return Records(self.source, self.places[chosen], self.name)

    def encoded(self, index: int) -> tuple[bytes, str]:
        """The bytes of an image, and what a message calls it."""
        place = int(self.places[index])
        example = self.source[place]
        file_name = example.get("file_name")
        if isinstance(file_name, bytes):
            file_name = file_name.decode(errors="replace")
        return example["image"], f"{file_name or f'record {place}'} of {self.name}"


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

    def take(self, places: np.ndarray) -> "Split":
        """Some of the examples."""
        return Split(self.images[places], self.labels[places])
