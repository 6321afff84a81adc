"""What is known of the classes of a run, for whoever reads its results or asks it for sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Classes:
    """The classes in the order of their labels.

    Attributes:
        names: what people call each.
        training_images: how many images of each were trained on.
    """

    names: tuple[str, ...]
    training_images: tuple[int, ...]

    @classmethod
    def from_plain(cls, plain: Sequence[Mapping[str, Any]]) -> "Classes":
        """The classes from what `to_plain` made.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        return cls(
            tuple(str(entry["name"]) for entry in plain),
            tuple(int(entry["training_images"]) for entry in plain),
        )

    def to_plain(self) -> list[dict[str, Any]]:
        """What JSON can hold: an entry a class."""
        return [
            {"name": name, "training_images": count}
            for name, count in zip(self.names, self.training_images, strict=True)
        ]
