"""What people read: lines, names, bars of progress, and what a terminal would obey, escaped."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Column

_Item = TypeVar("_Item")

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


class _Console(Console):
    """A console of rich that escapes untrusted text, in tables too."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Escapes what a terminal would obey; rich itself adds styles later."""
        for segment in super().render(renderable, options):
            is_text = segment.control is None
            yield segment._replace(text=printable_lines(segment.text)) if is_text else segment

    def on_broken_pipe(self) -> None:
        """Raises the error again: rich would end the process with a meaningless exit code."""
        raise  # noqa: PLE0704


def make_console(*, stderr: bool = False, width_without_terminal: int | None = None) -> Console:
    """A console that animates and colours on a terminal only.

    Args:
        stderr: whether it is standard error, not standard output.
        width_without_terminal: the width of a pipe or a file; by default rich's.
    """
    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return _Console(
        stderr=stderr,
        highlight=False,
        # Brackets and colons in names of others.
        markup=False,
        emoji=False,
        # Explicit: with FORCE_COLOR in the environment, rich treats a pipe as a terminal.
        force_terminal=is_terminal,
        width=None if is_terminal else width_without_terminal,
    )


def show_line(text: str, console: Console | None = None) -> None:
    """Prints a line that is never cut or folded, so that a path in it can be copied.

    What a terminal would obey in it, such as in the name of a file, is escaped.

    Args:
        text: the line.
        console: where to print it, above its progress bar if it has one; by default standard
            output.
    """
    (console or make_console()).print(printable(text), soft_wrap=True)


_NAMED = 3


def in_words(names: Sequence[str], what: str) -> str:
    """The first names in a message, and the number of all names if there are more."""
    text = first_names(names)
    return text if len(names) <= _NAMED else f"{len(names)} {what}: {text}"


def first_names(names: Sequence[str], most: int = _NAMED) -> str:
    """The first names in a message, with dots if there are more."""
    return ", ".join([*names[:most], *(["…"] if len(names) > most else [])])


def make_bar(
    console: Console, *, before: str = "", after: Sequence[ProgressColumn] = ()
) -> Progress:
    """A progress bar as wide as the terminal, which ends with the time left and is then removed.

    Args:
        console: where it is drawn; nothing is drawn unless this is a terminal that can animate.
        before: the text left of the bar, a format string of rich.
        after: what is between the bar and the time left.
    """
    return Progress(
        TextColumn(before),
        BarColumn(bar_width=None),
        *after,
        # On a narrow terminal the bar shrinks, not the time.
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=len("0:00:00"))),
        TextColumn("left"),
        console=console,
        expand=True,
        transient=True,
        # With the bar on standard error, standard output is not redirected: it may be a file.
        redirect_stdout=not console.stderr,
        disable=not console.is_terminal or console.is_dumb_terminal,
    )


def tracked(items: Iterable[_Item], total: int, what: str) -> Iterator[_Item]:
    """The items, with a bar on standard error if that is a terminal."""
    with make_bar(make_console(stderr=True), before=what, after=[MofNCompleteColumn()]) as bar:
        yield from bar.track(items, total=total)


def show_files(paths: Mapping[str, Path], console: Console | None = None) -> None:
    """Prints the paths of files with their descriptions; by default on standard output."""
    width = max(map(len, paths), default=0)
    for what, path in paths.items():
        show_line(f"{what:<{width}}  {path}", console)
