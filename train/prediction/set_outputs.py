"""Writes the sets of images as lines of JSON and as a page, with a progress bar."""

import contextlib
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from train.foundation.console import make_console
from train.foundation.progress_bar import image_counts, make_bar
from train.prediction import html_page, image_sets, json_lines
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.image_sets import Unreadable
from train.prediction.trained import TrainedClassifier


def write(
    classifier: TrainedClassifier,
    rule: CalibratedRule,
    paths: Sequence[Path],
    names: Sequence[str],
    *,
    lines: Path | None,
    page: Path | None,
) -> bool:
    """Writes the set of each image; prints to standard error which images cannot be read.

    Args:
        classifier: the classifier.
        rule: the rule that makes the sets.
        paths: of the images.
        names: of the classes.
        lines: the file for the lines of JSON; None for standard output.
        page: the file for the page; None for no page.

    Returns:
        Whether every image could be read.
    """
    # Pillow's warnings about damaged and large files: where they matter, we raise our own errors.
    # Filtered here and not where the images are read, because all threads share the filters.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    unreadable = 0
    with contextlib.ExitStack() as stack:
        cards = None
        if page is not None:
            facts = html_page.Facts.of(classifier, rule, names)
            cards = stack.enter_context(html_page.writing(page, facts))
        output = stack.enter_context(json_lines.writing(lines))
        bar = make_bar(
            make_console(stderr=True),
            after=image_counts(),
            # On the same terminal, the lines of JSON show the progress.
            shown=lines is not None or not sys.stdout.isatty(),
        )
        progress = stack.enter_context(bar).add_task("", total=len(paths))
        for entry in image_sets.make_sets(classifier, rule, paths, thumbnails=page is not None):
            output.write(json_lines.to_line(entry, rule, names))
            if cards is not None:
                cards.add(entry)
            if isinstance(entry, Unreadable):
                unreadable += 1
                # rich prints it above the bar.
                _say(entry.error)
            bar.advance(progress)
    if unreadable:
        _say(f"{unreadable:,} of {len(paths):,} images could not be read")
    return unreadable == 0


def _say(text: str) -> None:
    # On one line, even if the name of a file has line breaks.
    print(" ".join(text.split()), file=sys.stderr, flush=True)  # noqa: T201
