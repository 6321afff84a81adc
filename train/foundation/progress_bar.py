"""Progress bars, all made by one function."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from train.foundation.console import make_console, show_line

# Without a terminal, an `ImageProgress` prints this many lines in all.
_LINES = 20


def make_bar(
    console: Console,
    *,
    before: str = "{task.description}",
    after: Sequence[ProgressColumn] = (),
    transient: bool = False,
    shown: bool = True,
) -> Progress:
    """A progress bar as wide as the terminal, which ends with the time left.

    Args:
        console: where it is drawn; nothing is drawn unless this is a terminal that can animate.
        before: the text left of the bar, a format string of rich.
        after: what is between the bar and the time left.
        transient: whether the bar is removed at the end.
        shown: whether it is drawn at all.
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
        transient=transient,
        # With the bar on standard error, standard output is not redirected: it may be a file.
        redirect_stdout=not console.stderr,
        disable=not (shown and console.is_terminal and not console.is_dumb_terminal),
    )


def counts(what: str) -> tuple[ProgressColumn, ...]:
    """The columns that show how many images, or other things, of all are done."""
    return (MofNCompleteColumn(), TextColumn(what))


class ImageProgress:
    """Shows on standard output how many images of all are done: a bar, or lines in a log.

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
        self._bar = make_bar(make_console(), after=counts("images"))
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
