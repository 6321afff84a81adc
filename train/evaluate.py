"""Evaluates the sets of a classifier: `python -m train.evaluate --workdir=DIR`.

By default it takes the test split of the run, and limits from the validation examples. It also
takes a published network, a program that train.export wrote, new labelled data, and scores from
elsewhere:

    python -m train.evaluate --weights=resnet18_weights_best_acc.tar --dataset=plantnet300k
    python -m train.evaluate --workdir=DIR --images=FOLDER
    python -m train.evaluate --weights=PROGRAM --images=FOLDER
    python -m train.evaluate --scores=test.npz --calibration=validation.npz

The rules of the sets are those of --sets, or top-K, average-K and conformal sets.
"""

from pathlib import Path

from absl import flags

from train.classifiers import flags as classifier_flags
from train.configuration.datasets import HOW_GROUPS_ARE_FOUND
from train.foundation import command, kinds
from train.foundation.errors import UserError
from train.foundation.flags import Flag, Needed, check, declare, path_of
from train.prediction import set_flags

_DATA, _SPLITS = ("images", "features"), ("test", "validation", "train", "balanced_test")
_CLASSIFIER = classifier_flags.define()
_SCORES = flags.DEFINE_string(
    "scores",
    None,
    "Instead of --workdir: an .npz file with an array scores, probabilities or logits [examples, "
    "classes], and an array labels. A logit of -inf masks its class.",
)
_SPLIT = flags.DEFINE_string(
    "split",
    None,
    f"The split of the data set, one of {', '.join(_SPLITS)}; by default test. Only "
    "synthetic_latents has balanced_test, with equally many examples of every class.",
)
_IMAGES = flags.DEFINE_string(
    "images",
    None,
    "New labelled images instead of a split: a folder with a folder for each class, or a table "
    "with the columns path and label, as for configs/images.py. Splits of a table are not used.",
)
_FEATURES = flags.DEFINE_string(
    "features",
    None,
    "The same for a classifier of features: an .npz file, or a folder of .npy files, with the "
    "arrays features and labels, as for configs/features.py.",
)
_GROUP = flags.DEFINE_string(
    "group",
    None,
    "How the groups of the new data are found, such as the photographs of one plant: in a folder "
    f"{HOW_GROUPS_ARE_FOUND}; by default as in the run. Of a table or of features, the column or "
    "the array of the groups; by default group, if there is one.",
)
_SETS = set_flags.define(repeated=True)
_CALIBRATION = flags.DEFINE_string(
    "calibration",
    None,
    "What limits of sets are fitted on. validation: the validation examples of the classifier; the "
    "default. half: one half of the examples; the other half is evaluated, and a group is in one "
    "half. FILE.npz: the scores in this file, as of --scores. FILE.json: limits that "
    "--calibration_out wrote. Without it, --scores has limits from the same scores.",
)
_CALIBRATION_OUT = flags.DEFINE_string(
    "calibration_out",
    None,
    "The .json file for the fitted limits, for --calibration here, of train.predict and of "
    "train.export.",
)
_OUT = flags.DEFINE_multi_string(
    "out",
    [],
    "A file to write, whose suffix says what: .json the report, .csv its rows, .npz the scores, "
    ".png, .svg or .pdf a figure of the rules. May be given several times. The report of a run is "
    "by default evaluation_SPLIT.json in its folder, of new data evaluation_of_NAME.json.",
)
_EXAMPLES = flags.DEFINE_string(
    "examples",
    None,
    "An .html file for a page of the examples that are most wrong, with three .csv files and a "
    ".png file of the confusions beside it; or a .csv file for these without the page.",
)
_FULL = flags.DEFINE_bool(
    "full", False, "Whether everything is shown, and all conformal rules are compared by default."
)


_CALIBRATES = kinds.text(
    r"^(validation|half|.*\.(npz|json))$",
    "validation, half, or a file whose suffix is .npz or .json",
)
_ROWS = declare(
    Needed(
        ("workdir", "weights", "scores"),
        "the folder of a finished run, a file of weights, a program, or a file of scores",
    ),
    Flag(
        "scores",
        kinds.TEXT,
        exists=True,
        excludes=(*(one for one in classifier_flags.NAMES if one != "taxonomy"), *_DATA, "split"),
        because="scores are of examples already, and need no network",
    ),
    Flag("images", excludes=("features",)),
    *(Flag(name, kinds.TEXT) for name in _DATA),
    Flag("split", kinds.one_of(_SPLITS), excludes=_DATA, because="new data have no splits"),
    Flag("group", kinds.TEXT, needs=_DATA),
    Flag("calibration", _CALIBRATES),
    Flag(
        "calibration_out", needs=("workdir", "weights"), because="its limits are those of a network"
    ),
)


def main() -> None:
    """Evaluates what the flags name."""
    chosen, scores = _CLASSIFIER(), path_of(_SCORES)
    check(_ROWS)
    if scores is None:
        chosen.check(calibration_out=_CALIBRATION_OUT.value)
    new = [(one.name, Path(one.value)) for one in (_IMAGES, _FEATURES) if one.value is not None]
    if scores is None and chosen.workdir is None and chosen.dataset is None and not new:
        raise UserError("--weights needs --dataset, --images or --features: examples to evaluate")

    from train.evaluating import flow, outputs, source

    asked = source.Asked(
        chosen=chosen,
        scores=scores,
        split=_SPLIT.value or "test",
        data=new[0] if new else None,
        group=_GROUP.value,
        sets=tuple(_SETS()),
        calibration=_CALIBRATION.value,
        full=_FULL.value,
    )
    files = outputs.check(asked, _OUT.value, path_of(_EXAMPLES), path_of(_CALIBRATION_OUT))
    flow.evaluate(asked, files)


if __name__ == "__main__":
    command.run(main)
