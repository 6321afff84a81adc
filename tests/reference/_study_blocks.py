"""The blocks of the pages of the comparison of losses: Markdown with numbers in braces."""

import functools
import re
import tomllib
from collections.abc import Callable

from tests.reference._studies import EVIDENCE
from tests.reference._study_sentences import sentence

# The text of each block, whose braces hold what a number is asked for with.
TEMPLATES: dict[str, str] = tomllib.loads((EVIDENCE / "blocks.toml").read_text())
_ASKED = re.compile(r"\{([^{}]*)\}")


def block(name: str) -> str:
    """A block with its numbers."""
    return filled(TEMPLATES[name]).strip()


def filled(template: str) -> str:
    """A text with the numbers that its braces ask for."""
    return _ASKED.sub(lambda asked: sentence(asked[1]), template)


def words(name: str) -> str:
    """What of a block is the same whatever the results are."""
    return _ASKED.sub("", TEMPLATES[name])


BLOCKS: dict[str, Callable[[], str]] = {name: functools.partial(block, name) for name in TEMPLATES}
