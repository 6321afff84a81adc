"""The classes of a run: their names and their numbers of training images."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from train.data.taxonomy import ClassTree


@dataclass(frozen=True)
class Classes:
    """The classes in the order of their labels.

    Attributes:
        names: the name of each class.
        training_images: the number of training images of each class.
        tree: what is above the classes; None if nothing has two of them.
    """

    names: tuple[str, ...]
    training_images: tuple[int, ...]
    tree: ClassTree | None = None

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def counts(self) -> np.ndarray | None:
        """The training images of each class, [L]; None if no class has any."""
        return np.array(self.training_images) if any(self.training_images) else None

    @classmethod
    def of(cls, names: Sequence[str]) -> "Classes":
        """Classes of which only the names are known."""
        return cls(tuple(names), (0,) * len(names))

    def to_plain(self) -> list[dict[str, Any]]:
        """A JSON value with one entry per class."""
        plain: list[dict[str, Any]] = [
            {"name": name, "training_images": count}
            for name, count in zip(self.names, self.training_images, strict=True)
        ]
        if self.tree is not None:
            for entry, names in zip(plain, self.tree.to_rows(), strict=True):
                entry["ranks"] = names
        return plain
