"""The user's own images as a source finds them: listed, and still encoded."""

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path

from train.configuration.datasets import DividedFields
from train.data.own import division, duplicates
from train.data.own.encoded_images import EncodedImages, Files, file_sizes
from train.data.own.listing import Listing
from train.sharing import kinds


@dataclass(frozen=True)
class FoundImages:
    """Images with their classes and splits.

    Attributes:
        listing: their names, classes and splits.
        images: the images, in the order of the list, as `Records` takes them.
        root: the folder or the data set that they are in.
        where: what they were found in, for messages.
        version: of the data set, where it has one.
        grammar: what found the groups of the images; see `groups`. None if nothing did.
    """

    listing: Listing
    images: EncodedImages
    root: Path
    where: str
    version: str = ""
    grammar: str | None = None

    @classmethod
    def in_files(cls, listing: Listing, root: Path, where: str) -> "FoundImages":
        """Images in files, whose sizes are not in the list yet."""
        listing = dataclasses.replace(listing, sizes=file_sizes(root, listing.paths))
        return cls(listing, Files(root, listing.paths), root, where)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the images, labels and splits."""
        return self.listing.digest(self.version)

    @functools.cached_property
    def state(self) -> str:
        """A hash that also changes with the files of the images."""
        files = self.images.files() if isinstance(self.images, Files) else ()
        return kinds.digest(self.digest, kinds.digest_of_files(files))

    def divided(self, fields: DividedFields) -> "FoundImages":
        """The images with all splits; images of two splits with the same content are reported.

        Raises:
            UserError: no classifier can be trained with them; see `division.divide`.
        """
        listing = division.divide(
            self.listing, fields, where=self.where, example="image", root=self.root
        )
        duplicates.warn(listing, self.images)
        return dataclasses.replace(self, listing=listing)
