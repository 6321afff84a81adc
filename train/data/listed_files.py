"""The files of a data set as a run found them when it began, so that it knows them again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ListedFiles:
    """Files with their classes and splits; see `train.data.own.listing.Listing`.

    Attributes:
        digest: the digest of the data set; see `Dataset.digest`.
        image_shape: the image shape of the data set; see `Dataset.image_shape`.
        class_names: the names of the classes.
        unseen_class_names: the names of further classes; see `Dataset.unseen_class_names`.
        given: the numbers of the roles whose files were given; the others were held out.
        paths: the paths of the files.
        labels: the class of each file, int32 [n].
        roles: the role of each file, int8 [n]; negative for one that is left out.
        sizes: the bytes of each file, int64 [n]; negative where they could not be found out.
    """

    digest: str
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    unseen_class_names: tuple[str, ...]
    given: frozenset[int]
    paths: tuple[str, ...]
    labels: np.ndarray
    roles: np.ndarray
    sizes: np.ndarray

    def to_plain(self) -> dict[str, Any]:
        """A JSON value; a path that is not UTF-8 has no text, and is written by its bytes."""
        return {
            "digest": self.digest,
            "image_shape": list(self.image_shape),
            "class_names": [_printed(name) for name in self.class_names],
            "unseen_class_names": [_printed(name) for name in self.unseen_class_names],
            "given": sorted(self.given),
            "paths": [_printed(path) for path in self.paths],
            "labels": self.labels,
            "roles": self.roles,
            "sizes": self.sizes,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "ListedFiles":
        """The files from the result of `to_plain`.

        Raises:
            ValueError: the lists are of different lengths, or a label is no class.
        """
        height, width, channels = plain["image_shape"]
        labels, roles, sizes = (
            np.array(plain[name], np.int64) for name in ("labels", "roles", "sizes")
        )
        class_names, unseen_class_names, paths = (
            tuple(map(_read, plain[name]))
            for name in ("class_names", "unseen_class_names", "paths")
        )
        if not len(paths) == len(labels) == len(roles) == len(sizes):
            raise ValueError("its lists are of different lengths")
        if labels.size and not labels.max() < len(class_names) + len(unseen_class_names):
            raise ValueError("it has a label that is no class")
        return cls(
            digest=plain["digest"],
            image_shape=(height, width, channels),
            class_names=class_names,
            unseen_class_names=unseen_class_names,
            given=frozenset(plain["given"]),
            paths=paths,
            labels=labels.astype(np.int32),
            roles=roles.astype(np.int8),
            sizes=sizes,
        )


def _printed(text: str) -> str:
    # JSON files of the program have no half characters, which names of files can have.
    return text.encode(errors="surrogateescape").decode("latin-1")


def _read(text: str) -> str:
    return text.encode("latin-1").decode(errors="surrogateescape")
