"""Sets of classes for images: `python -m train.predict --workdir=DIR --images=DIR --top_k=5`.

One line of JSON per image is written to standard output or to --out, in the order of the images:
{"path", "set": [{"class", "index", "probability"}, …], "size", "threshold", "rule"}, with the most
probable class first. The threshold is null for the top K, and if every class is in the set. A file
that cannot be read has {"path", "error"}, and the exit code is then 1.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from train import command_line
from train.foundation import output_files
from train.foundation.errors import UserError
from train.prediction import rule_flags

_WORKDIR = flags.DEFINE_string("workdir", None, "Needed. The folder of a finished run.")
_IMAGES = flags.DEFINE_multi_string(
    "images",
    None,
    # What else can be done, absl adds.
    "needed: image files, or folders that are searched for them; several with commas between",
)
_RULE = rule_flags.define()
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
    """Writes the sets of the images."""
    if not _WORKDIR.value:
        raise UserError("--workdir is needed: the folder of a finished run")
    if not _IMAGES.value:
        raise UserError("--images is needed: image files, or folders with some")
    chosen = _RULE()

    from train.prediction import (
        calibrated_rule,
        class_names,
        image_files,
        set_outputs,
        trained,
    )

    paths = image_files.find(_IMAGES.value)
    out, html = _target("out", _OUT.value, paths), _target("html", _HTML.value, paths)
    if out is not None and html is not None and out.absolute() == html.absolute():
        raise UserError(f"--out and --html must be two files; both are {out}")
    given = class_names.read(_CLASS_NAMES.value) if _CLASS_NAMES.value is not None else None
    classifier = trained.load(Path(_WORKDIR.value))
    names = classifier.classes.names
    if given is not None:
        given.check_number(len(names))
        names = given.names
    rule = calibrated_rule.calibrate(classifier, chosen)
    if not set_outputs.write(classifier, rule, paths, names, lines=out, page=html):
        sys.exit(1)


def _target(flag: str, value: str | None, images: Sequence[Path]) -> Path | None:
    """The file that a flag names for writing, if any."""
    if value is None:
        return None
    return output_files.checked(flag, value, dict.fromkeys(images, "one of the images"))


if __name__ == "__main__":
    command_line.run(main)
