"""Sets of classes for images: `python -m train.predict --workdir=DIR --images=DIR --top_k=5`.

A line of JSON for each image goes to standard output or to --out, in the order of the images:
{"path", "set": [{"class", "index", "probability"}, …], "size", "threshold", "rule"}, the likeliest
class first. The threshold is null where there is none: for the top K, and where every class is in
the set. A file that cannot be read has {"path", "error"}, and makes the exit code 1.
"""

import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from absl import flags
from PIL import Image

from train import command_line
from train.foundation import files, output_files
from train.foundation.console import make_console
from train.foundation.errors import UserError
from train.foundation.progress_bar import image_counts, make_bar
from train.prediction import calibrated_rule, html_page, image_files, image_sets, trained
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.image_sets import ImageSet, Unreadable

_WORKDIR = flags.DEFINE_string("workdir", None, "Needed. The folder of a finished run.")
_IMAGES = flags.DEFINE_multi_string(
    "images",
    None,
    # What else can be done, absl adds.
    "needed: image files, or folders that are searched for them; several with commas between",
)
_RULE = calibrated_rule.define_flags()
_OUT = flags.DEFINE_string(
    "out", None, "The file that the lines go to; by default they go to standard output."
)
_HTML = flags.DEFINE_string(
    "html", None, "A file for a page with the images and their sets, to be opened in a browser."
)
_CLASS_NAMES = flags.DEFINE_string(
    "class_names",
    None,
    "A file with the name of a class a line, in UTF-8, to be used instead of those of the run.",
)


def main() -> None:
    """Makes the sets that the flags ask for."""
    if not _WORKDIR.value:
        raise UserError("--workdir is needed: the folder of a finished run")
    if not _IMAGES.value:
        raise UserError("--images is needed: image files, or folders with some")
    make_rule = _RULE()
    paths = image_files.find(_IMAGES.value)
    out, html = _target("out", _OUT.value, paths), _target("html", _HTML.value, paths)
    if out is not None and html is not None and out.absolute() == html.absolute():
        raise UserError(f"--out and --html must be two files; both are {out}")
    given_names = None if _CLASS_NAMES.value is None else _read_names(_CLASS_NAMES.value)
    classifier = trained.load(Path(_WORKDIR.value))
    names = given_names or classifier.classes.names
    if len(names) != len(classifier.classes.names):
        raise UserError(
            f"--class_names must have a line for each of the {len(classifier.classes.names)} "
            f"classes; {_CLASS_NAMES.value} has {len(names)}"
        )
    rule = make_rule(classifier)
    # What Pillow thinks of a damaged file, or of a large one, is told in our own words or not at
    # all. Here, not where the images are read: the filters belong to all threads.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)

    unreadable = 0
    with contextlib.ExitStack() as stack:
        page = None
        if html is not None:
            facts = html_page.Facts.of(classifier, rule, names)
            page = stack.enter_context(html_page.writing(html, facts))
        lines = stack.enter_context(_lines(out))
        # Lines of JSON that go to the same terminal are the progress themselves.
        bar = make_bar(
            make_console(stderr=True),
            after=image_counts(),
            shown=out is not None or not sys.stdout.isatty(),
        )
        progress = stack.enter_context(bar).add_task("", total=len(paths))
        found = image_sets.make_sets(classifier, rule, paths, thumbnails=page is not None)
        for entry in found:
            lines.write(_to_line(entry, rule, names))
            if page is not None:
                page.add(entry)
            if isinstance(entry, Unreadable):
                unreadable += 1
                # Above the bar, where there is one.
                _say(entry.error)
            bar.advance(progress)
    if unreadable:
        _say(f"{unreadable:,} of {len(paths):,} images could not be read")
        sys.exit(1)


def _to_line(entry: ImageSet | Unreadable, rule: CalibratedRule, names: Sequence[str]) -> bytes:
    """The line of JSON for an image."""
    if isinstance(entry, Unreadable):
        return files.to_json({"path": str(entry.path), "error": entry.error})
    members = [
        {"class": names[index], "index": index, "probability": probability}
        for index, probability in zip(entry.classes, entry.probabilities, strict=True)
    ]
    return files.to_json(
        {
            "path": str(entry.path),
            "set": members,
            "size": len(members),
            "threshold": rule.threshold,
            "rule": str(rule),
        }
    )


def _read_names(path: str) -> tuple[str, ...]:
    """The lines of a file."""
    try:
        # Windows' editors begin a file with a mark, and end lines in their own way.
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"--class_names {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"--class_names {path} is not in UTF-8: {error}") from error
    # Not by splitlines, which takes other characters for ends of lines too.
    names = tuple(name.strip() for name in text.removesuffix("\n").split("\n"))
    if "" in names:
        raise UserError(
            f"--class_names must have a name on each line; line {names.index('') + 1} of {path} "
            "is blank"
        )
    return names


def _target(flag: str, value: str | None, images: Sequence[Path]) -> Path | None:
    """The file that a flag has written, if that can be."""
    if value is None:
        return None
    return output_files.checked(flag, value, dict.fromkeys(images, "one of the images"))


@contextlib.contextmanager
def _lines(out: Path | None) -> Iterator[BinaryIO]:
    """Where the lines go."""
    if out is not None:
        with files.replacing(out) as file:
            yield file
        return
    try:
        with files.naming(Path("standard output")):
            yield sys.stdout.buffer
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the lines has had enough, as `head` has. Python would try once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)


def _say(text: str) -> None:
    # In a line of its own, whatever is in the name of a file.
    print(" ".join(text.split()), file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    command_line.run(main)
