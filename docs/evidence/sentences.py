"""Whether the sentences of the pages hold that rest on numbers of the evidence."""

import re
import tomllib
from collections.abc import Sequence

from answers import FOLDER
from texts import number

ROOT = FOLDER.parent.parent


def wrong() -> list[str]:
    """What is wrong with the sentences of sentences.toml, a line for each mistake."""
    content = tomllib.loads((FOLDER / "sentences.toml").read_text())
    return [
        f"{page}: {mistake}: {one['words']}"
        for page, sentences in content.items()
        for one in sentences
        for mistake in mistakes((ROOT / page).read_text(), **one)
    ]


def mistakes(page: str, words: str, holds: Sequence[Sequence[str]]) -> list[str]:
    """What is wrong with the words of a page that stand for these relations."""
    on_page = words in re.sub(r"\s+", " ", page)
    failed = [" ".join(relation) for relation in holds if not _holds(*relation)]
    return failed if on_page else ["not on the page", *failed]


def _holds(asked: str, relation: str, other: str) -> bool:
    """Whether a number is the other text, or is below the other number.

    Raises:
        ValueError: there is no such relation.
    """
    if relation == "is":
        return number(asked) == other
    if relation == "below":
        return max(_numbers(asked)) < min(_numbers(other))
    raise ValueError(f'the relation must be "is" or "below"; got {relation!r}')


def _numbers(asked: str) -> list[float]:
    """The number, or the smallest and the largest of several studies."""
    text = asked if asked in ("0", "1") else number(asked)
    without_interval = text.partition(" ±")[0]
    return [float(found) for found in without_interval.split(" to ")]
