"""Sets of classes for images: `python -m train.predict --workdir=DIR --images=DIR --top_k=5`.

For a published network, --weights=FILE stands in the place of --workdir, with --dataset=NAME or
--classes=FILE. For a run on features, --features=FILE stands in the place of --images.
--split=test takes the test examples of the run.

--html=FILE writes a page. One line of JSON per image is written to --out, or to standard output if
neither file is given, in the order of the images:
{"path", "set": [{"class", "index", "probability"}, ...], "size", "rule", "calibrated_on"}. A file
that cannot be read has {"path", "error"}, and the exit code is then 1. Of features, a line has
"row", counted from 0, and "name" instead of "path".

With --group, a line is for an observation, such as the photographs of one plant. It has "group",
which is null for an image alone, and "examples": [{"path"}, ...]. docs/sets.md has all fields.
"""

from pathlib import Path

from absl import flags

from train.classifiers import flags as classifier_flags
from train.configuration.datasets import HOW_GROUPS_ARE_FOUND
from train.foundation import command, kinds
from train.foundation.errors import UserError
from train.foundation.flags import Flag, Needed, check, declare, path_of
from train.prediction import set_flags, shares

_CLASSIFIER = classifier_flags.define()
_IMAGES = flags.DEFINE_multi_string(
    "images",
    None,
    "Image files, or folders that are searched for them; several with commas between. This, "
    "--features or --split is needed.",
)
_FEATURES = flags.DEFINE_string(
    "features",
    None,
    "Instead of --images, for a run on features: an .npz file, or a folder of .npy files, with an "
    "array features [rows, features] and optionally an array names [rows]; or one .npy file.",
)
_SPLIT = flags.DEFINE_enum(
    "split",
    None,
    ("test", "validation"),
    "Instead of --images: the examples of a split of the data set of the run.",
)
_GROUP = flags.DEFINE_string(
    "group",
    None,
    f"Makes one set for all images of an observation: {HOW_GROUPS_ARE_FOUND}. It is searched in "
    "the paths, or the names. With --features it may be the name of an array of groups.",
)
_SETS = set_flags.define(repeated=False)
_CALIBRATION = flags.DEFINE_string(
    "calibration",
    None,
    "A file that train.evaluate --calibration_out=FILE wrote, whose limits are used in place of "
    "those of the validation images.",
)
_OUT = flags.DEFINE_string("out", None, "The file of the lines.")
_HTML = flags.DEFINE_string("html", None, "A file for a page with the sets, for a browser.")
_SIMILAR = flags.DEFINE_integer(
    "similar",
    None,
    "How many training examples the page has beside each of the first ten classes of a set: the "
    "most similar ones by the features below the head. It needs the data set of the run.",
)
_SHARE = shares.define(_OUT, _HTML)
_ROWS = declare(
    Needed(("images", "features", "split"), "image files or folders with some, a file, or a split"),
    Flag("images", excludes=("features", "split")),
    Flag("features", excludes=("split",)),
    Flag("split", needs=("workdir",), because="the data set is that of a run"),
    Flag("split", excludes=("group", "weights"), because="the examples are those of the run"),
    *(Flag(name, kinds.TEXT) for name in ("features", "calibration")),
    Flag("group", kinds.TEXT),
    Flag("similar", kinds.integer(1, 12), needs=("html",), because="the page shows them"),
    Flag("similar", excludes=("group",), because="it is for single images and rows of features"),
)


def main() -> int:
    """Writes the sets of the images or rows."""
    chosen = _CLASSIFIER()
    chosen.check(calibration=_CALIBRATION.value)
    check(_ROWS)
    texts = _SETS(needed=not chosen.is_program)
    share = _SHARE()
    from train.classifiers import loading
    from train.classifiers.trained import TrainedClassifier
    from train.foundation.console import show_files
    from train.prediction import entries, inputs, outputs, predicting, set_page, similar
    from train.reports import rules
    from train.run import output_files

    rule = next(map(rules.parse, texts), None)
    features = path_of(_FEATURES)
    examples = None if _SPLIT.value else inputs.find(_IMAGES.value or [], features, _GROUP.value)
    kept = chosen.files | ({} if examples is None else inputs.files(examples, features))
    named = {"calibration": _CALIBRATION.value, "sets": rule and rule.rule.costs}
    kept |= {Path(path): f"the file of --{flag}" for flag, path in named.items() if path}
    out = (
        None
        if _OUT.value is None
        else output_files.checked("out", _OUT.value, kept, suffixes=(".jsonl",))
    )
    kept |= {} if out is None else {out: "the file of --out"}
    html = (
        None
        if _HTML.value is None
        else output_files.checked("html", _HTML.value, kept, suffixes=(".html",))
    )
    classifier = None
    if examples is None:
        classifier = loading.load(chosen)
        examples = inputs.of_split(classifier, str(_SPLIT.value))
    examples = inputs.of_share(examples, share)
    if html is not None:
        set_page.check(examples.num_groups)
    if classifier is None:
        classifier = loading.load(chosen, takes_images=features is None)
        examples = inputs.fit_for(examples, classifier, features)
    grouped, calibration = _GROUP.value is not None, path_of(_CALIBRATION)
    rule = predicting.fitted_rule(classifier, rule, grouped=grouped, calibration=calibration)
    found = predicting.predict(classifier, rule, examples, thumbnails=html is not None)
    if _SIMILAR.value is not None:
        if not isinstance(classifier, TrainedClassifier) or classifier.classes.counts is None:
            raise UserError("--similar needs the training examples of a run or a data set")
        found = similar.beside(found, classifier, _SIMILAR.value)
    facts = set_page.PageFacts.of(classifier, rule)
    unreadable = outputs.write(
        found,
        lambda entry: entries.to_line(entry, rule, facts.names),
        out,
        None if html is None else lambda shown: set_page.write(html, shown, facts),
        total=len(examples),
        facts=facts,
    )
    written = {what: path for what, path in (("sets", out), ("page", html)) if path is not None}
    show_files(written)
    return int(bool(unreadable))


if __name__ == "__main__":
    command.run(main)
