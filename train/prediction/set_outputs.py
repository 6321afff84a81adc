"""Writes sets of classes as lines of JSON and as a page, with a progress bar."""

import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from train.foundation.console import make_console
from train.foundation.printable import printable
from train.foundation.progress_bar import counts, make_bar
from train.prediction import html_page, image_files, json_lines
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.class_sets import ClassSet, Unreadable


class Written(NamedTuple):
    """What was written.

    Attributes:
        complete: whether every image could be read.
        pages: how many pages there are.
    """

    complete: bool
    pages: int


class Total(NamedTuple):
    """The number of examples, and what the progress bar calls them."""

    number: int
    counted: str


def write(
    entries: Iterable[ClassSet | Unreadable],
    total: Total,
    facts: html_page.PageFacts,
    rule: CalibratedRule,
    *,
    lines: Path | None,
    page: Path | None,
) -> Written:
    """Writes the set of each example; prints to standard error which images cannot be read.

    Args:
        entries: the sets.
        total: of the examples that they are made from.
        facts: what is known of the classifier.
        rule: the rule that made the sets.
        lines: the file for the lines of JSON; None for standard output.
        page: the file for the page; None for no page.
    """
    image_files.ignore_warnings()
    unreadable = 0
    with contextlib.ExitStack() as stack:
        cards = None
        if page is not None:
            cards = stack.enter_context(html_page.writing(page, facts))
        output = stack.enter_context(json_lines.writing(lines))
        bar = make_bar(
            make_console(stderr=True),
            after=counts(total.counted),
            # If the lines of JSON go to the same terminal, they show the progress.
            shown=lines is not None or not sys.stdout.isatty(),
        )
        progress = stack.enter_context(bar).add_task("", total=total.number)
        for entry in entries:
            output.write(json_lines.to_line(entry, rule, facts.names))
            if cards is not None:
                cards.add(entry)
            failed = (entry,) if isinstance(entry, Unreadable) else entry.unreadable
            for file in failed:
                unreadable += 1
                # rich prints it above the bar.
                _print_error(file.error)
                if cards is not None and file is not entry:
                    cards.add(file)
            bar.advance(progress, 1 if isinstance(entry, Unreadable) else entry.num_examples)
    if unreadable:
        _print_error(f"{unreadable:,} of {total.number:,} images could not be read")
    return Written(unreadable == 0, 0 if cards is None else cards.number)


def _print_error(text: str) -> None:
    # On one line, even if the name of a file has line breaks.
    print(printable(" ".join(text.split())), file=sys.stderr, flush=True)  # noqa: T201
