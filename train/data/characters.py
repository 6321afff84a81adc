"""Names as rows of characters, which networks of names take."""

import unicodedata
from collections.abc import Sequence

import numpy as np

# The characters of a row. What a longer name has beyond them is left out: of 200,000 names of
# places, 174 are longer.
LENGTH = 40


def normalized(name: str) -> str:
    """The name as all ways to write it are taken: in lower case, with single spaces.

    Composed and decomposed accents become the same (NFKC), and accents stay. The result is at most
    `LENGTH` characters long.
    """
    lower = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(lower.split())[:LENGTH].rstrip()


def to_rows(names: Sequence[str] | np.ndarray) -> np.ndarray:
    """Normalized names as the code points of their characters, int32 [n, LENGTH].

    0 stands after the end of a name.
    """
    # NumPy stores texts of a fixed length as code points.
    texts = np.array(names, dtype=f"=U{LENGTH}")
    return texts.view(np.int32).reshape(len(names), LENGTH)
