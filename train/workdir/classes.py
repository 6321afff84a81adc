"""The classes of a run: their names and their numbers of training images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Classes:
    """The classes in the order of their labels.

    Attributes:
        names: the name of each class.
        training_images: the number of training images of each class.
    """

    names: tuple[str, ...]
    training_images: tuple[int, ...]

    def are_some_of(self, others: "Classes") -> bool:
        """Whether they equal other classes, with at most their numbers of training images."""
        counts = zip(self.training_images, others.training_images, strict=False)
        return self.names == others.names and all(own <= other for own, other in counts)

    @classmethod
    def from_plain(cls, plain: Sequence[Mapping[str, Any]]) -> "Classes":
        """The classes from the result of `to_plain`.

        Raises:
            KeyError, TypeError, ValueError: the argument has another form.
        """
        return cls(
            tuple(str(entry["name"]) for entry in plain),
            tuple(int(entry["training_images"]) for entry in plain),
        )

    def to_plain(self) -> list[dict[str, Any]]:
        """A JSON value with one entry per class."""
        return [
            {"name": name, "training_images": count}
            for name, count in zip(self.names, self.training_images, strict=True)
        ]
