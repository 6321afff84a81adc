"""Names in messages."""

from collections.abc import Sequence

_NAMED = 3


def in_words(names: Sequence[str], what: str) -> str:
    """The first names in a message, and the number of all names if there are more."""
    text = first_names(names)
    return text if len(names) <= _NAMED else f"{len(names)} {what}: {text}"


def first_names(names: Sequence[str], most: int = _NAMED) -> str:
    """The first names in a message, with dots if there are more."""
    return ", ".join([*names[:most], *(["…"] if len(names) > most else [])])
