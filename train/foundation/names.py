"""Names in Unicode: a file system may store "ê" as one character, or as "e" and an accent."""

import re
import unicodedata
from pathlib import Path

_SPACE = re.compile(r"\s")


def same_form(text: str) -> str:
    """What two names have in common that are the same: NFC, plain spaces, none around them.

    Examples:
        >>> same_form("Che\u0302ne\u00a0vert ") == same_form("Ch\u00eane vert")
        True
    """
    text = text if text.isascii() else unicodedata.normalize("NFC", text)
    return _SPACE.sub(" ", text).strip()


def in_utf8(text: str) -> str:
    r"""A name of a file for a text in UTF-8: bytes that are not UTF-8 are Python's escapes.

    Examples:
        >>> print(in_utf8("sk\udce4rm.jpg"))
        sk\udce4rm.jpg
    """
    return text.encode(errors="backslashreplace").decode()


def shown(text: str) -> str:
    """A text in a message, with the code points of what is not ASCII if it has another form.

    Examples:
        >>> shown("oak"), shown("Che\u0302ne").endswith(" (Che<U+0302>ne)")
        ('oak', True)
    """
    if same_form(text) == text:
        return text
    points = (letter if letter.isascii() else f"<U+{ord(letter):04X}>" for letter in text)
    return f"{text} ({''.join(points)})"


def existing(path: Path) -> Path:
    """The path in the form of Unicode in which it exists; the path itself if it does not."""
    forms = (Path(unicodedata.normalize(form, str(path))) for form in ("NFC", "NFD"))
    return next((one for one in (path, *forms) if one.exists()), path)
