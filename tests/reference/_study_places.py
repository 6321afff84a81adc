"""The places of a page that are made from the results: `<!-- NAME -->TEXT<!-- end -->`."""

import re
from dataclasses import dataclass

_COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", flags=re.DOTALL)
# Digits in the name of a study or a field do not count.
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\w)")


@dataclass(frozen=True)
class Place:
    """What a place is called, and what stands in it."""

    name: str
    text: str


def places(page: str) -> list[Place]:
    """All places of a page, in their order. Every other comment is a mistake."""
    # Text, comment, text, comment and so on, and a text at the end.
    parts = _COMMENT.split(page)
    comments, texts = parts[1::2], parts[2::2]
    names, ends = comments[::2], comments[1::2]
    if len(names) != len(ends) or set(ends) - {"end"} or "end" in names:
        raise ValueError("each comment should be the name of a place or, after it, its end")
    return [Place(name, text.strip()) for name, text in zip(names, texts[::2], strict=True)]
