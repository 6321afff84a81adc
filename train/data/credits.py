"""Who made each image of a data set, and under which licence it may be used."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# The columns of a table with them, as Pl@ntNet-300K calls them.
AUTHOR, LICENSE = "author", "license"
# How many licences are counted: a table may have another text for each image.
_MOST_LICENSES = 100


@dataclass(frozen=True)
class Credits:
    """The authors and the licences of n images; empty texts if they are not known.

    Attributes:
        authors: the author of each image, texts [n].
        licenses: the licence of each image, texts [n].
    """

    authors: np.ndarray
    licenses: np.ndarray

    @classmethod
    def of_columns(cls, columns: Mapping[str, Sequence[str]]) -> "Credits | None":
        """The credits in the columns of a table; None if it has neither column."""
        if AUTHOR not in columns and LICENSE not in columns:
            return None
        number = len(columns[AUTHOR if AUTHOR in columns else LICENSE])
        unknown = [""] * number
        return cls(*(_texts(columns.get(name, unknown)) for name in (AUTHOR, LICENSE)))

    @classmethod
    def of_pairs(cls, pairs: Sequence[tuple[str, str]]) -> "Credits":
        """The credits of images, each an author and a licence."""
        return cls(*(_texts(texts) for texts in zip(*pairs, strict=True)))

    def __len__(self) -> int:
        """The number of images."""
        return len(self.authors)

    def __getitem__(self, chosen: np.ndarray | Sequence[int]) -> "Credits":
        """The credits of some images."""
        places = np.asarray(chosen)
        return Credits(self.authors[places], self.licenses[places])

    def placed(self, places: np.ndarray) -> "Credits":
        """The credits of the images at some places; a negative place is one that is not known."""
        found = (_texts([*texts.tolist(), ""])[places] for texts in (self.authors, self.licenses))
        return Credits(*found)

    def in_words(self, index: int) -> str:
        """The author and the licence of an image; empty if neither is known."""
        return ", ".join(filter(None, (self.authors[index], self.licenses[index])))

    def license_counts(self) -> dict[str, int]:
        """The images of each of the most frequent licences; images with "" have no licence."""
        return dict(Counter(self.licenses.tolist()).most_common(_MOST_LICENSES))

    def to_plain(self) -> dict[str, Any]:
        """A JSON value; each text is in it once."""
        return {name: _numbered(texts) for name, texts in self._by_name().items()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], num_images: int) -> "Credits":
        """The credits from the result of `to_plain`.

        Raises:
            ValueError: they are not the credits of that number of images.
        """
        found = []
        for name in (AUTHOR, LICENSE):
            texts = [str(text) for text in plain[name]["texts"]]
            numbers = np.array(plain[name]["numbers"], np.int64)
            if numbers.shape != (num_images,) or not set(numbers.tolist()) <= {*range(len(texts))}:
                raise ValueError(f"its {name}s are not those of its {num_images:,} images")
            found.append(_texts(texts)[numbers])
        return cls(*found)

    def _by_name(self) -> dict[str, np.ndarray]:
        return {AUTHOR: self.authors, LICENSE: self.licenses}


def _texts(texts: Sequence[str]) -> np.ndarray:
    return np.array(texts, object)


def _numbered(texts: np.ndarray) -> dict[str, Any]:
    number = {text: place for place, text in enumerate(dict.fromkeys(texts.tolist()))}
    return {"texts": [*number], "numbers": np.array([number[text] for text in texts], np.int64)}
