"""Escapes untrusted text, such as file names, before it is printed."""

# Control characters, which can be commands to a terminal; marks that change the direction of the
# text or end a line; and bytes of a name that are not UTF-8.
_CODES = (
    *range(0x20),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
    *range(0xD800, 0xE000),
)
_ESCAPES = {code: chr(code).encode("unicode_escape").decode() for code in _CODES}


def printable(text: str) -> str:
    r"""A text on one line, with the characters that a terminal obeys as in Python's literals.

    Examples:
        >>> print(printable("a\x1b]0;title\x07.jpg"))
        a\x1b]0;title\x07.jpg
    """
    return text if text.isprintable() else text.translate(_ESCAPES)


def printable_lines(text: str) -> str:
    """A text as `printable` gives it, whose ends of lines stay what they are."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
