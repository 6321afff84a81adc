"""What a run keeps of its data set, to be used without it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from train.data.classes import Classes

if TYPE_CHECKING:
    # Commands import this module before they need JAX.
    from train.data import DatasetSpec


@dataclass(frozen=True)
class Facts:
    """What is only known from the files of a data set, and how the run normalizes.

    Attributes:
        classes: the names of the classes and their numbers of training images.
        image_shape: height, width and channels of the images that the model gets; for features,
            only their number.
        digest: for a user's own files, a hash that changes if the files, labels or splits change.
        mean: the mean of each feature over the training rows. For images, the mean of each channel
            if the run does not normalize with the numbers of the data set, otherwise `None`.
        std: the standard deviation, like `mean`.
        embedded_by: the network that made the features, as `train.embed` describes it; `None` if it
            is not known, and for other data.
    """

    classes: Classes
    image_shape: tuple[int, ...]
    digest: str | None = None
    # Not compared: other machines may round them differently, and the digest covers the features.
    mean: tuple[float, ...] | None = field(default=None, compare=False)
    std: tuple[float, ...] | None = field(default=None, compare=False)
    # Not compared: the digest covers the features, and the network may be at another place.
    embedded_by: Mapping[str, Any] | None = field(default=None, compare=False)

    def are_of(self, others: "Facts") -> bool:
        """Whether other facts are of the same data, whatever is above the classes."""
        known = dataclasses.replace(others.classes, tree=self.classes.tree)
        return self == dataclasses.replace(others, classes=known)

    def complete(self, spec: "DatasetSpec") -> "DatasetSpec":
        """The data set with the shape of its examples, and the mean and deviation of the run."""
        if spec.image_shape is None:
            spec = spec.of_shape(self.image_shape)
        if self.mean is None or self.std is None:
            return spec
        return dataclasses.replace(spec, mean=self.mean, std=self.std)

    def to_plain(self) -> dict[str, Any]:
        """A JSON value of all but the classes, which have a file of their own."""
        plain: dict[str, Any] = {"image_shape": list(self.image_shape), "digest": self.digest}
        if self.mean is not None and self.std is not None:
            plain |= {"mean": list(self.mean), "std": list(self.std)}
        if self.embedded_by is not None:
            plain["embedded_by"] = dict(self.embedded_by)
        return plain

    @classmethod
    def from_plain(cls, classes: Classes, plain: Mapping[str, Any]) -> "Facts":
        """The facts from the classes and the result of `to_plain`.

        Raises:
            KeyError, TypeError, ValueError: the argument has another form.
        """
        shape = tuple(int(size) for size in plain["image_shape"])
        mean, std = (
            tuple(float(value) for value in plain[name]) if name in plain else None
            for name in ("mean", "std")
        )
        for name, values in (("mean", mean), ("std", std)):
            if values is not None and len(values) != shape[-1]:
                raise ValueError(f"{name!r} must have {shape[-1]} numbers, and has {len(values)}")
        digest = digest_from_plain(plain)
        return cls(classes, shape, digest, mean, std, plain.get("embedded_by"))


def digest_from_plain(plain: Mapping[str, Any]) -> str | None:
    """Only the digest, from the result of `Facts.to_plain`.

    Raises:
        KeyError, TypeError: the argument has another form.
    """
    digest = plain["digest"]
    return None if digest is None else str(digest)
