"""The files of a page of many cards: the first has its name, the others have numbers after it.

The pages after `sets.html` are `sets.2.html`, `sets.3.html` and so on. Each names itself in a tag.
So the pages of an earlier run are distinguished from other files, which are neither replaced nor
removed.
"""

import os
import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from train.foundation import files
from train.foundation.errors import UserError
from train.foundation.names import in_utf8
from train.prediction.html_page import words

# How many cards a page has. Thumbnails of photographs have 15 to 25 kB each.
CARDS = 200
# The tag is in this number of first bytes of a page.
_HEAD = 4096


def number(cards: int) -> int:
    """The number of pages for a number of cards; at least 1."""
    return max(1, -(-cards // CARDS))


def path(first: Path, page: int) -> Path:
    """The file of a page. Pages are counted from 1."""
    return first if page == 1 else first.with_name(f"{first.stem}.{page}{first.suffix}")


def address(first: Path, page: int) -> str:
    """The address of a page in a link from another one."""
    return quote(os.fsencode(path(first, page).name))


def around_number(first: Path) -> tuple[str, str]:
    """What is before and after the number in the addresses of the pages after the first."""
    return quote(os.fsencode(f"{first.stem}.")), quote(os.fsencode(first.suffix))


def marks_name(first: Path) -> str:
    """The name of the file that the marks of a person are saved in."""
    return f"{in_utf8(first.stem)}-marks.csv"


def tag(first: Path, page: int) -> Markup:
    """The tag by which a numbered page is known."""
    generator = words.plain(f"topk_jax, train.predict, page {page} of {first.name}")
    return Markup('<meta name="generator" content="{}">').format(generator)


def check(first: Path, cards: int, taken: Collection[Path]) -> None:
    """Refuses to replace files that are not pages of this name.

    Args:
        first: the file of the first page.
        cards: how many there may be.
        taken: other files that will be written.

    Raises:
        UserError: such a file has the name of a numbered page.
    """
    others = {other.absolute() for other in taken}
    for page in range(2, number(cards) + 1):
        numbered = path(first, page)
        exists = os.path.lexists(numbered)
        if numbered.absolute() in others or (exists and not _is_page(numbered, first, page)):
            raise UserError(
                f"--html writes its page {page} to {numbered}, which is another file; "
                f"give --html another name"
            )


def remove_further(first: Path, last: int) -> None:
    """Removes the pages after the last one, which an earlier run of more examples has written."""
    pattern = re.compile(re.escape(first.stem) + r"\.([1-9]\d*)" + re.escape(first.suffix))
    for other in list(first.parent.iterdir()):
        found = pattern.fullmatch(other.name)
        if found and int(found[1]) > last and _is_page(other, first, int(found[1])):
            other.unlink(missing_ok=True)


def _is_page(file: Path, first: Path, page: int) -> bool:
    """Whether a file is this page by its tag."""
    try:
        with files.open_regular(file) as opened:
            return tag(first, page).encode() in opened.read(_HEAD)
    except OSError:
        return False
