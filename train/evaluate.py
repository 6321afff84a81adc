"""Everything about the sets of a classifier: `python -m train.evaluate --workdir=DIR`.

For a finished run, every metric of the papers on a split, with thresholds from its validation
images; the same for a published network, or for scores from elsewhere, without a model:

    python -m train.evaluate --weights=resnet18_weights_best_acc.tar --dataset=plantnet300k
    python -m train.evaluate --scores=test.npz --calibration=validation.npz

For new labelled data, with the thresholds of the run, or for a program that train.export wrote:

    python -m train.evaluate --workdir=DIR --images=FOLDER
    python -m train.evaluate --program=FILE --images=FOLDER
"""

from pathlib import Path

from absl import flags

from train.foundation import command_line, fields, flag_rules
from train.foundation.errors import UserError
from train.foundation.flag_rules import Flag, Needed
from train.foundation.flag_types import path_of
from train.prediction import classifier_flags
from train.prediction.evaluating import measure_flags, new_data_flags, output_flags
from train.workdir import output_files, run_files

_SPLITS = ("test", "validation", "train", "balanced_test")

_CLASSIFIER = classifier_flags.define()
_PROGRAM = flags.DEFINE_string(
    "program",
    None,
    "Instead of --workdir: a file that train.export wrote, with its description beside it. Its own "
    "sets are evaluated.",
)
_SPLIT = flags.DEFINE_string(
    "split",
    None,
    f"With --workdir or --weights: the split of the data set, one of {', '.join(_SPLITS)}; by "
    "default test. Only synthetic_latents has balanced_test, with equally many examples of every "
    "class.",
)
_NEW_DATA = new_data_flags.define()
_SCORES = flags.DEFINE_string(
    "scores",
    None,
    "Instead of --workdir: an .npz file with an array called logits, probabilities or scores "
    "[examples, classes], and an array labels. A logit of -inf masks its class.",
)
_CALIBRATION = flags.DEFINE_string(
    "calibration",
    None,
    "all, the default: thresholds are calibrated on all calibration examples. half: on one half of "
    "them; if these are also the evaluated examples, only the other half is evaluated. A group is "
    "in one half. FILE.npz, with --scores: on the scores in this file; without it they are "
    "calibrated on --scores itself, where they look better than they are.",
)
_MEASURES = measure_flags.define()
_OUTPUTS = output_flags.define()
# Files that are read, and must be kept.
_INPUTS = ("scores", "program", *new_data_flags.NAMES, "thresholds", "costs")
# Flags of a classifier that has examples of its own.
_OF_RUNS = tuple(name for name in classifier_flags.NAMES if name != "taxonomy")
_ROWS = flag_rules.declare(
    Needed(
        ("workdir", "features_run", "weights", "scores", "program"),
        "the folder of a finished run, a file of the weights of a network, a file of scores, or "
        "an exported program",
    ),
    Flag(
        "scores",
        fields.text("a file"),
        excludes=(*_OF_RUNS, "program", *new_data_flags.NAMES),
        because="scores are evaluated without a network",
    ),
    Flag(
        "program",
        fields.text("a file"),
        needs=new_data_flags.NAMES,
        excludes=_OF_RUNS,
        because="it is evaluated on new data, without a run",
    ),
    Flag(
        "program",
        excludes=("coverages", "rules", "recalibrate", "thresholds", "max_error", "risks"),
        because="a program has its own rule",
    ),
    Flag("split", fields.one_of(_SPLITS)),
    Flag("calibration", fields.text("all, half or an .npz file")),
    *new_data_flags.ROWS,
    *measure_flags.ROWS,
    *output_flags.ROWS,
)


def main() -> None:
    """Evaluates what the flags name."""
    chosen, outputs = _CLASSIFIER(), _OUTPUTS()
    scores, program = path_of(_SCORES), path_of(_PROGRAM)
    flag_rules.check(_ROWS)
    calibration = None if _CALIBRATION.value in (None, "all", "half") else path_of(_CALIBRATION)
    if calibration is not None and (scores is None or calibration.suffix != ".npz"):
        may_be = "all or half" + (", or an .npz file" if scores is not None else "")
        raise UserError(field="--calibration", must_be=may_be, got=str(calibration))
    if scores is None and program is None:
        chosen.check()
    measures = _MEASURES()
    given = {name: flags.FLAGS[name].value for name in _INPUTS}
    given["calibration"] = calibration
    read = {Path(value): f"what --{name} is read from" for name, value in given.items() if value}
    outputs.check(chosen.files | read)
    asked = _NEW_DATA(measures, chosen.taxonomy, outputs.calibration_out)
    is_half = _CALIBRATION.value == "half"
    out, split = outputs.out, _SPLIT.value or "test"
    workdir = chosen.workdir or chosen.features_run
    if scores is None and out is None and workdir is not None:
        folder = Path(workdir)
        out = run_files.evaluation(folder, split) if asked is None else asked.report_in(folder)
        output_files.refuse_protected_folders("out", out)

    from train.prediction import classifiers, exported_classifier
    from train.prediction.evaluating import new_data
    from train.prediction.evaluating import outputs as writing
    from train.prediction.evaluating import scores as scoring
    from train.prediction.evaluating import split as splitting

    if scores is not None:
        evaluated = scoring.evaluate(
            scores, measures, calibration=calibration, is_half=is_half, taxonomy=chosen.taxonomy
        )
    elif asked is None:
        classifier = classifiers.load(chosen)
        evaluated = splitting.evaluate(classifier, split, measures, is_half=is_half)
    elif program is None:
        classifier = classifiers.load(chosen, takes_images=asked.flag != "features")
        evaluated = new_data.evaluate(classifier, asked, new_data.find(classifier, asked))
    else:
        exported = exported_classifier.load(program)
        evaluated = new_data.evaluate_program(exported, asked, new_data.find(exported, asked))
    writing.write(evaluated, outputs, out)


if __name__ == "__main__":
    command_line.run(main)
