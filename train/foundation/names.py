"""Names in Unicode: when two of them are the same, and which characters look the same.

A file system may store "ê" as one character or as "e" and a combining accent, and a spreadsheet may
keep characters that have no width. Such names look the same, so they are the same here.
"""

import os
import re
import unicodedata
from pathlib import Path

# Characters without a width that are not of the category Cf: the combining grapheme joiner, fillers
# of Hangul, vowels of Khmer, selectors of variants, and what Unicode reserves for more of these.
_WITHOUT_WIDTH = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xFFF0, 0xFFF9),
            *range(0xE0000, 0xE1000),
        ),
    )
)
# Characters of the category Cf that are drawn: signs of Arabic, Syriac and Kaithi around numbers.
_DRAWN = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
# The pattern of Braille without dots, and a head of a note that is not drawn.
_BLANK = "\u2800\U0001d159"
_SPACE = re.compile(r"\s")
# Flags of parts of countries: a black flag, and letters without a width that name the part.
_FLAG = re.compile("(\U0001f3f4[\U000e0020-\U000e007e]+\U000e007f)")


def same_form(text: str) -> str:
    """What names have in common that look the same: NFC, plain spaces, no invisible characters.

    Compatible characters stay different: "H₂O" and "H2O" are two names, as they are two for the
    eye.

    Examples:
        >>> same_form("Che\u0302ne\u200b ") == same_form("Ch\u00eane")
        True
    """
    if not text.isascii():
        # Every other part is a flag.
        parts = _FLAG.split(text)
        parts[::2] = ["".join(one for one in part if not _is_invisible(one)) for part in parts[::2]]
        text = unicodedata.normalize("NFC", "".join(parts))
    return _SPACE.sub(" ", text).strip()


def is_visible(text: str) -> bool:
    r"""Whether a text has a character that can be seen; a combining accent by itself is not one.

    A vowel sign with a width of its own, as in Bengali, is one.

    Examples:
        >>> is_visible("e\u0301"), is_visible("\u0301"), is_visible("\u200b \u202e")
        (True, False, False)
    """
    return any(map(_is_seen_alone, text))


def in_utf8(text: str) -> str:
    r"""A name of a file for a text in UTF-8: bytes that are not UTF-8 are Python's escapes.

    Examples:
        >>> print(in_utf8("sk\udce4rm.jpg"))
        sk\udce4rm.jpg
    """
    return text.encode(errors="backslashreplace").decode()


def code_points(text: str) -> str:
    """A text with the code points of what is not ASCII.

    Examples:
        >>> code_points("Che\u0302ne")
        'Che<U+0302>ne'
    """
    return "".join(letter if letter.isascii() else f"<U+{ord(letter):04X}>" for letter in text)


def shown(text: str) -> str:
    """A text in a message, with its code points if it has characters that cannot be seen.

    Examples:
        >>> shown("oak.png"), shown("oak\u200b.png").endswith(" (oak<U+200B>.png)")
        ('oak.png', True)
    """
    return text if same_form(text) == text else f"{text} ({code_points(text)})"


class SimilarFiles:
    """Finds files by names that look like the names of the files, or that `in_utf8` makes of these.

    Args:
        root: the folder that relative paths start in.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        # The entries of each folder that was looked into, by what their names have in common.
        self._entries: dict[str, dict[str, list[str]]] = {}

    def find(self, path: str) -> str | None:
        """The path of what is there, with "/" between folders; None if nothing is found.

        What has exactly this path comes first, then what looks like it, and then what has "/" in
        place of its backslashes. If several entries of a folder look like a name, none is found.
        """
        found = self._alike(path)
        if found is None and "\\" in path:
            return self._alike(path.replace("\\", "/"))
        return found

    def _alike(self, path: str) -> str | None:
        if os.path.lexists(self._at(path)):
            return path
        found = "/" if path.startswith("/") else ""
        for part in path.strip("/").split("/"):
            name = part
            if not os.path.lexists(self._at(found + part)):
                alike = self._in(self._at(found)).get(same_form(part), [])
                if len(alike) != 1:
                    return None
                (name,) = alike
            found += f"{name}/"
        return found.removesuffix("/")

    def _at(self, path: str) -> str:
        return os.path.join(self._root, path)  # noqa: PTH118 (as long as the rest)

    def _in(self, folder: str) -> dict[str, list[str]]:
        if folder not in self._entries:
            entries: dict[str, list[str]] = {}
            try:
                names = os.listdir(folder)  # noqa: PTH208
            except OSError:
                names = []
            for name in names:
                entries.setdefault(same_form(in_utf8(name)), []).append(name)
            self._entries[folder] = entries
        return self._entries[folder]


def existing(path: Path) -> Path:
    """The path of the file or folder that looks like a path; the path itself if there is none."""
    found = SimilarFiles(Path()).find(str(path))
    return path if found is None else Path(found)


def _is_invisible(letter: str) -> bool:
    if letter in _WITHOUT_WIDTH:
        return True
    return unicodedata.category(letter) == "Cf" and letter not in _DRAWN


def _is_seen_alone(letter: str) -> bool:
    category = unicodedata.category(letter)
    # Marks without a width, separators, and control characters.
    is_unseen = category in {"Mn", "Me", "Cc"} or category[0] == "Z" or letter in _BLANK
    return not is_unseen and not _is_invisible(letter)
