"""How far a preparation is: a bar on a terminal, a line now and then elsewhere."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

# Where there is no terminal, so many lines in all; a log wants no more.
_LINES = 20


class ImageProgress:
    """Shows on standard output how many images of all are done.

    Args:
        what: what is done with them, as "checking and writing".
        total: the number of images.
        done: how many of them an earlier start has done.
    """

    def __init__(self, what: str, total: int, *, done: int = 0) -> None:
        self._what = what
        self._total = total
        self._done = done
        self._shown = done
        console = Console(highlight=False, force_terminal=sys.stdout.isatty())
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("images"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            expand=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(what, total=total, completed=done)

    def advance(self, images: int) -> None:
        """Counts some more images as done."""
        self._done += images
        self._bar.update(self._task, completed=self._done)
        if self._bar.disable and (
            self._done == self._total or (self._done - self._shown) * _LINES >= self._total
        ):
            self._shown = self._done
            show_line(f"{self._what}: {self._done:,} of {self._total:,} images")

    def __enter__(self) -> "ImageProgress":
        """Shows the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        """Leaves the bar as it is."""
        self._bar.stop()


def show_line(text: str) -> None:
    """Prints a line at once: whoever waits for a preparation reads along."""
    print(text, flush=True)  # noqa: T201
