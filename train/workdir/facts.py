"""What a run keeps of its data set, to be used without it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from train.workdir.classes import Classes


@dataclass(frozen=True)
class Facts:
    """What only the files of a data set tell.

    Attributes:
        classes: the names of the classes and their numbers of training images.
        image_shape: height, width and channels of the images that the model gets.
        digest: of people's own files, a text that is another for other files, labels or splits.
    """

    classes: Classes
    image_shape: tuple[int, int, int]
    digest: str | None = None

    def images_to_plain(self) -> dict[str, Any]:
        """A JSON value of all but the classes, which have a file of their own."""
        return {"image_shape": list(self.image_shape), "digest": self.digest}

    @classmethod
    def from_plain(cls, classes: Classes, plain: Mapping[str, Any]) -> "Facts":
        """The facts from the classes and the result of `images_to_plain`.

        Raises:
            KeyError, TypeError, ValueError: the argument has another form.
        """
        height, width, channels = map(int, plain["image_shape"])
        digest = plain["digest"]
        return cls(classes, (height, width, channels), None if digest is None else str(digest))
