"""Standard output and standard error as rich's consoles, and how a line is printed on them."""

import sys
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from train.foundation.printable import printable, printable_lines


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
