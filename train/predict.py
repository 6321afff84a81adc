"""Sets of classes for images: `python -m train.predict --workdir=DIR --images=DIR --top_k=5`.

For a published network, --weights=FILE stands in the place of --workdir, with --dataset=NAME or
--classes=FILE.

For a run on features, --features=FILE stands in the place of --images. It takes --images, too, if
train.embed made the features, or with --features_run=DIR --weights=FILE.

One line of JSON per image is written to standard output or to --out, in the order of the images:
{"path", "set": [{"class", "index", "probability"}, …], "size", "threshold", "rule"}, with the most
probable class first. The threshold is null for the top K, for rules of --rule with a score, and if
every class is in the set. A file that cannot be read has {"path", "error"}, and the exit code is
then 1. Of features, a line has "row", counted from 0, instead of "path", and "name" if the file has
names.

With --allow_new, a line has "none_of_these", which is true if the example may be of none of the
classes; an empty set is then no answer but that.

With --max_error, a set has one class or, for no answer, none.

With --shard=i/n, there are only sets of every n-th example, or with --group of every n-th
observation. The lines of all shares are those of one command, in another order.

With --group, a line is for an observation, such as the photographs of one plant. It has "group",
which is null for an image that belongs to no other, and "paths" (or "rows" and
"example_names"), and "unreadable" with the path and the error of each further file, if there are
some.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from train.configuration.datasets import HOW_GROUPS_ARE_FOUND
from train.evaluation import combinations
from train.foundation import command_line, fields, flag_rules
from train.foundation.errors import UserError
from train.foundation.flag_rules import Exclusive, Flag, Needed
from train.prediction import classifier_flags, rule_flags, shares
from train.workdir import output_files

if TYPE_CHECKING:
    from train.prediction import observation_sets
    from train.prediction.class_sets import ClassSet, Unreadable
    from train.prediction.trained import TrainedClassifier

_CLASSIFIER = classifier_flags.define()
_IMAGES = flags.DEFINE_multi_string(
    "images",
    None,
    # What else can be done, absl adds.
    "needed: image files, or folders that are searched for them; several with commas between",
)
_FEATURES = flags.DEFINE_string(
    "features",
    None,
    "Instead of --images, for a run on features: an .npz file, or a folder of .npy files, with an "
    "array features [rows, features] and optionally an array names [rows]; or one .npy file.",
)
_GROUP = flags.DEFINE_string(
    "group",
    None,
    "Makes one set for all images of an observation, with thresholds from the validation "
    f"observations: {HOW_GROUPS_ARE_FOUND}. It is searched in the paths, or the names. With "
    "--features it may be the name of an array of groups.",
)
_COMBINE = flags.DEFINE_string(
    "combine",
    None,
    f"how the images of an observation are combined, by default {combinations.DEFAULT}. "
    f"{combinations.IN_WORDS}.",
)
_RULE = rule_flags.define()
_OUT = flags.DEFINE_string(
    "out", None, "The file that the lines go to; by default they go to standard output."
)
_HTML = flags.DEFINE_string(
    "html", None, "A file for a page with the sets, to be opened in a browser."
)
_SIMILAR = flags.DEFINE_integer(
    "similar",
    None,
    "How many training examples the page has beside each class of a set: those of the class whose "
    "features below the head are most similar. The data set of the run has to be on this machine, "
    "and goes through the network once. Only the first ten classes of a set have some.",
)
_SHARE = shares.define(_OUT, _HTML)
_CLASS_NAMES = flags.DEFINE_string(
    "class_names",
    None,
    "A file with one class name per line, in UTF-8, to be used instead of the names of the run.",
)
_EXAMPLES = ("images", "features")
_ROWS = flag_rules.declare(
    Needed(_EXAMPLES, "image files or folders with some, or a file"),
    Exclusive(_EXAMPLES),
    Flag("features_run", excludes=("features",), because="it takes images"),
    Flag("group", fields.text()),
    Flag("group", excludes=("allow_new",), because="outlier scores are of single examples"),
    Flag(
        "combine",
        fields.one_of(combinations.COMBINATIONS),
        needs=("group",),
        because="other sets are of single images",
    ),
    Flag(
        "similar",
        fields.integer(1, 12),
        needs=("html",),
        because="the page shows them",
    ),
    Flag(
        "similar",
        excludes=("group",),
        because="it is for single images and rows of features",
    ),
)


def main() -> None:
    """Writes the sets of the images or rows."""
    classifier_chosen = _CLASSIFIER()
    classifier_chosen.check()
    flag_rules.check(_ROWS)
    rule_chosen = rule_flags.chosen(_RULE())
    share = _SHARE()
    classifier_chosen.check_rule(rule_chosen)

    from train.foundation.console import make_console
    from train.prediction import (
        calibrated_rule,
        class_names,
        classifiers,
        html_page,
        observation_sets,
        set_outputs,
    )
    from train.prediction.html_page import page_files
    from train.workdir import terminal

    examples = _find_examples()
    kept = dict.fromkeys(examples.files, examples.described) | classifier_chosen.files
    out, html = _targets(kept | rule_chosen.files)
    grouped: observation_sets.MakesSets
    combined_by = None
    if _GROUP.value is None:
        grouped = examples = examples.take(shares.places(share, len(examples)))
    else:
        grouped = observations = observation_sets.group(examples, _GROUP.value, share)
        examples, combined_by = observations.examples, _COMBINE.value or combinations.DEFAULT
    if html is not None:
        page_files.check(html, len(grouped), [] if out is None else [out])
    given = None
    if _CLASS_NAMES.value is not None:
        given = class_names.read("class_names", _CLASS_NAMES.value)
    classifier = classifiers.load(classifier_chosen, takes_images=bool(_IMAGES.value))
    examples.check(classifier)
    _check_similar(classifier)
    names = classifier.classes.names
    if given is not None:
        given.check_number(len(names))
        names = given.names
    rule = calibrated_rule.calibrate(classifier, rule_chosen, combined_by)
    facts = html_page.PageFacts.of(classifier, rule, names)
    if _GROUP.value is not None:
        # The results of the run are for single examples.
        facts = dataclasses.replace(facts, example="observation", expected="")
    total = set_outputs.Total(len(examples), f"{classifier.spec.example}s")
    entries = grouped.make_sets(classifier, rule, thumbnails=html is not None)
    entries = _with_similar(entries, examples, classifier)
    complete, pages = set_outputs.write(entries, total, facts, rule, lines=out, page=html)
    page = "page" if pages <= 1 else f"first of {pages:,} pages"
    written = {what: path for what, path in (("sets", out), (page, html)) if path is not None}
    # Without a file, standard output has the lines.
    terminal.show_files(written, make_console(stderr=out is None))
    if not complete:
        sys.exit(1)


def _find_examples() -> "observation_sets.Examples":
    """The images or rows that the flags name."""
    from train.prediction import image_files, image_sets, row_sets

    if _FEATURES.value is not None:
        return row_sets.read(_FEATURES.value)
    return image_sets.ImageFiles(image_files.find(_IMAGES.value or []))


def _check_similar(classifier: "TrainedClassifier") -> None:
    """Refuses a classifier that has no training examples, if some are asked for."""
    if _SIMILAR.value is not None and not classifier.class_counts.any():
        raise UserError("--similar needs training examples, and a list of classes has none")


def _with_similar(
    entries: Iterator["ClassSet | Unreadable"],
    examples: "observation_sets.Examples",
    classifier: "TrainedClassifier",
) -> Iterator["ClassSet | Unreadable"]:
    """The sets with similar training examples, if they are asked for."""
    from train.prediction import image_sets, row_sets, similar_examples

    if _SIMILAR.value is None:
        return entries
    assert isinstance(examples, image_sets.ImageFiles | row_sets.NamedRows)
    return similar_examples.beside(entries, examples, classifier, _SIMILAR.value)


def _targets(kept: Mapping[Path, str]) -> tuple[Path | None, Path | None]:
    """The file of the lines and the file of the page, or None; refuses files that are kept."""
    if _CLASS_NAMES.value:
        kept = {**kept, Path(_CLASS_NAMES.value): "the file of --class_names"}
    out, html = _target("out", _OUT.value, kept), _target("html", _HTML.value, kept)
    if out is not None and html is not None and out.absolute() == html.absolute():
        raise UserError(f"--out and --html must be two files; both are {out}")
    return out, html


def _target(flag: str, value: str | None, kept: Mapping[Path, str]) -> Path | None:
    """The file that a flag names for writing, if any."""
    return None if value is None else output_files.checked(flag, value, kept)


if __name__ == "__main__":
    command_line.run(main)
