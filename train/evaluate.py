"""Everything about the sets of a classifier: `python -m train.evaluate --workdir=DIR`.

For a finished run, every metric of the papers on a split, with thresholds from its validation
images; the same for a published network, or for somebody else's scores without a model:

    python -m train.evaluate --weights=resnet18_weights_best_acc.tar --dataset=plantnet300k
    python -m train.evaluate --logits=test.npz --calibration_logits=validation.npz

For new labelled data, with the thresholds of the run, or for a program that train.export wrote:

    python -m train.evaluate --workdir=DIR --images=FOLDER
    python -m train.evaluate --program=FILE --images=FOLDER

With --shard=i/n, the process computes the scores of one share of the examples and writes them
beside the report; --merge makes the report of all shares. Tasks of a job array or of srun do so
without a flag.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from absl import flags

from train.configuration.datasets import HOW_GROUPS_ARE_FOUND
from train.configuration.groups import TEN_CROPS
from train.foundation import command_line, fields, files, flag_rules, json_files
from train.foundation.errors import UserError
from train.foundation.flag_rules import Exclusive, Flag, Needed
from train.papers.figures.catalogue import SUFFIXES
from train.prediction import classifier_flags, rule_flags
from train.prediction.evaluating import measure_flags
from train.prediction.evaluating.measures import Measures
from train.sharing import share_flags
from train.workdir import output_files, run_files, terminal

if TYPE_CHECKING:
    from train.prediction.evaluating.evaluated import Evaluated
    from train.prediction.trained import TrainedClassifier
    from train.sharing.work import Share

_SPLITS = ("test", "validation", "train", "balanced_test")
# The formats of --examples.
_EXAMPLE_SUFFIXES = (".html", ".csv")

_CLASSIFIER = classifier_flags.define(has_classes=True)
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
    "default test. Only place_names and synthetic_latents have balanced_test, with as many "
    "examples of every class.",
)
_CROPS = flags.DEFINE_integer(
    "crops",
    None,
    "With --split: 1, the middle of each image, as train.predict looks at it, or 10, the mean over "
    "its four corners and its middle, each also mirrored. By default config.eval.crops of the run.",
)
_IMAGES = flags.DEFINE_string(
    "images",
    None,
    "new labelled images instead of a split: a folder with a folder for each class, as for "
    "configs/folder.py.",
)
_TABLE = flags.DEFINE_string(
    "table",
    None,
    "instead of --images: a table with the columns path and label, as for configs/table.py, and "
    "optionally group. Its splits are not used.",
)
_FEATURES = flags.DEFINE_string(
    "features",
    None,
    "instead of --images, for a run on features: an .npz file, or a folder of .npy files, with the "
    "arrays features and labels, as for configs/features.py.",
)
_GROUP = flags.DEFINE_string(
    "group",
    None,
    "how the groups of the new data are found, such as the photographs of one plant: with --images "
    f"{HOW_GROUPS_ARE_FOUND}; by default as in the run. With --table or --features the column or "
    "the array of the groups; by default group, if there is one.",
)
_RECALIBRATE = flags.DEFINE_string(
    "recalibrate",
    None,
    "half: thresholds are calibrated on one half of the new data, and the other half is evaluated. "
    "A group is in one half.",
)
_CALIBRATION_OUT = flags.DEFINE_string(
    "calibration_out",
    None,
    "the file for these thresholds, for --thresholds of train.evaluate, train.predict and "
    "train.export.",
)
_THRESHOLDS = rule_flags.define_thresholds()
_LOGITS = flags.DEFINE_string(
    "logits",
    None,
    "Instead of --workdir: an .npy file of somebody's logits [examples, classes], or an .npz file "
    "with an array called logits, probabilities or scores. A logit of -inf masks its class.",
)
_LABELS = flags.DEFINE_string(
    "labels",
    None,
    "their labels, an .npy or .npz file or a text with one a line; not needed where "
    "the .npz file has an array called labels.",
)
_CALIBRATION_LOGITS = flags.DEFINE_string(
    "calibration_logits",
    None,
    "those of the examples to calibrate on; by default the same, on which "
    "thresholds look better than they are.",
)
_CALIBRATION_LABELS = flags.DEFINE_string("calibration_labels", None, "their labels.")
_CLASS_COUNTS = flags.DEFINE_string(
    "class_counts",
    None,
    "the training images of each class, a file as of --labels; without it nothing "
    "is said of few, medium and many shot classes.",
)
_CALIBRATION = flags.DEFINE_string(
    "calibration",
    None,
    "all, the default: thresholds are calibrated on all the examples for it. half: on one half of "
    "them; if they are the examples that are evaluated, the other half is.",
)
_MEASURES = measure_flags.define()
_FIGURE = flags.DEFINE_string(
    "figure",
    None,
    "the file for a figure of their coverages over the mean sizes of their sets; its "
    f"suffix is one of {', '.join(SUFFIXES)}.",
)
_OUT = flags.DEFINE_string(
    "out",
    None,
    "The file that the report is written to, as JSON; by default evaluation_SPLIT.json in the "
    "workdir, for new data evaluation_of_NAME.json with the name of the folder or file, and none "
    "without a workdir.",
)
_SCORES = flags.DEFINE_string(
    "scores",
    None,
    "The .npz file that the scores, label and name of each example are written to.",
)
_EXAMPLES = flags.DEFINE_string(
    "examples",
    None,
    "An .html file for a page of the examples that are most wrong, of the classes and of their "
    "confusions, with three .csv files beside it; or a .csv file for these without a page.",
)
_SHARE = share_flags.define()
# What is read; it is to be kept.
_INPUTS = (
    *(_LOGITS, _LABELS, _CALIBRATION_LOGITS, _CALIBRATION_LABELS, _CLASS_COUNTS),
    *(_PROGRAM, _IMAGES, _TABLE, _FEATURES, _THRESHOLDS),
)
_OUTPUTS = (_OUT, _SCORES, _FIGURE, _CALIBRATION_OUT)
_NEW = ("images", "table", "features")
# What is named by these flags has a digest, or is an output.
_PLACES = (
    *("workdir", "weights", "program", "path", "data_dir", *_NEW),
    *("out", "scores", "figure", "examples", "calibration_out"),
)
_CONTENTS = ("classes", "taxonomy", "thresholds", "costs")
# Flags of a classifier that has examples of its own.
_OF_RUNS = tuple(name for name in classifier_flags.NAMES if name != "taxonomy")
_ROWS = flag_rules.declare(
    Needed(
        ("workdir", "features_run", "weights", "logits", "program"),
        "the folder of a finished run, a file of the weights of a network, somebody's logits, or "
        "an exported program",
    ),
    *(
        Flag(flag.name, fields.text("a folder" if flag is _IMAGES else "a file"))
        for flag in (*_INPUTS, *_OUTPUTS, _EXAMPLES)
    ),
    Flag(
        "logits",
        excludes=(*_OF_RUNS, "program", *_NEW),
        because="logits are evaluated alone",
    ),
    Flag(
        "program",
        needs=_NEW,
        excludes=_OF_RUNS,
        because="it is evaluated on new data, with nothing of a run",
    ),
    Flag(
        "program",
        excludes=("coverages", "rules", "recalibrate", "thresholds", "max_error", "risks"),
        because="a program has its own rule",
    ),
    Exclusive(_NEW),
    *(
        Flag(
            name,
            needs=("workdir", "features_run", "weights", "program"),
            excludes=("split", "calibration"),
            because="new data have neither splits nor other examples",
        )
        for name in _NEW
    ),
    Flag("classes", needs=_NEW, because="they have no examples of their own"),
    Flag(
        "features_run",
        needs=("images", "table"),
        because="its own rows are evaluated with --workdir",
    ),
    Flag("group", fields.text(), needs=_NEW),
    Flag("recalibrate", fields.one_of(("half",)), needs=_NEW),
    Flag("calibration_out", needs=("recalibrate",), because="it has new thresholds"),
    Flag("thresholds", needs=_NEW, because="a split is evaluated with thresholds of validation"),
    Flag("thresholds", excludes=("recalibrate",), because="that makes thresholds of its own"),
    Flag("split", fields.one_of(_SPLITS)),
    Flag(
        "crops",
        fields.one_or(TEN_CROPS),
        needs=("workdir", "weights"),
        excludes=_NEW,
        because="new data are evaluated as train.predict looks at them",
    ),
    *measure_flags.ROWS,
    Flag("combine", excludes=_NEW, because="new data are evaluated example by example"),
    Flag("calibration", fields.one_of(("all", "half"))),
    Flag("labels", needs=("logits",)),
    Flag("calibration_logits", needs=("logits",)),
    Flag("calibration_labels", needs=("calibration_logits",)),
    Flag("class_counts", needs=("logits",)),
    Flag("figure", needs=("rules",), because="it is drawn of them"),
    *share_flags.ROWS,
)


class _Work(NamedTuple):
    """What is evaluated.

    Attributes:
        network: a digest of the network.
        inputs: a digest of the examples.
        evaluate: evaluates them.
    """

    network: Callable[[], str]
    inputs: Callable[[], str]
    evaluate: Callable[["Share"], "Evaluated"]


def main() -> None:
    """Evaluates what the flags name."""
    chosen, logits, program = _CLASSIFIER(), _path(_LOGITS), _path(_PROGRAM)
    flag_rules.check(_ROWS)
    if logits is None and program is None:
        chosen.check()
    measures = _MEASURES()
    _check_files(chosen, measures)
    new = next((flag for flag in (_IMAGES, _TABLE, _FEATURES) if flag.value is not None), None)
    shared = _SHARE()
    if logits is not None:
        shared.refuse("--logits, which one process evaluates")
        _finish(_evaluate_scores(logits, chosen.taxonomy, measures), _path(_OUT))
        return
    # Before it takes its time.
    out = _path(_OUT) or _usual_out(chosen, new)
    shared.check(out)
    from train.sharing import kinds
    from train.sharing.sharing import taking_part

    work = _work(chosen, new, program, measures)
    share = shared.share(
        out,
        lambda: kinds.of(
            "evaluate",
            network=work.network(),
            inputs=work.inputs(),
            places=_PLACES,
            contents=_CONTENTS,
        ),
    )
    with taking_part(share):
        _finish(work.evaluate(share), out)


def _usual_out(
    chosen: classifier_flags.ChosenClassifier, new: flags.FlagHolder | None
) -> Path | None:
    """The file in the workdir for the report; None without a workdir."""
    if chosen.workdir is None and chosen.features_run is None:
        return None
    if new is None:
        assert chosen.workdir is not None
        return run_files.evaluation(Path(chosen.workdir), _split())
    return _file_of_new_data(chosen, new)


def _work(
    chosen: classifier_flags.ChosenClassifier,
    new: flags.FlagHolder | None,
    program: Path | None,
    measures: Measures,
) -> _Work:
    """What the flags evaluate."""
    from train.prediction import classifiers, exported_classifier
    from train.prediction.evaluating import new_data

    if new is None:
        return _work_of_split(classifiers.load(chosen), measures)
    asked = new_data.Asked(
        flag=new.name,
        path=Path(new.value),
        place=_place(new),
        group=_GROUP.value,
        measures=measures,
        taxonomy=chosen.taxonomy,
        is_half=_RECALIBRATE.value is not None,
        thresholds=_path(_THRESHOLDS),
        calibration_out=_path(_CALIBRATION_OUT),
    )
    if program is not None:
        file = exported_classifier.read(program)
        exported = file.load()
        found = new_data.find(exported, asked)
        return _Work(
            lambda: file.digest,
            lambda: found.digest,
            lambda share: new_data.evaluate_program(exported, asked, found, share),
        )
    classifier = classifiers.load(chosen, takes_images=new is not _FEATURES)
    data = new_data.find(classifier, asked)
    return _Work(
        lambda: classifier.digest,
        lambda: data.digest,
        lambda share: new_data.evaluate(classifier, asked, data, share),
    )


def _work_of_split(classifier: "TrainedClassifier", measures: Measures) -> _Work:
    from train.prediction.evaluating import split
    from train.sharing import kinds

    def inputs() -> str:
        dataset = classifier.load_dataset()
        sizes = [len(getattr(dataset, name)) for name in ("train", "validation", "test")]
        return kinds.digest(classifier.spec.name, _split(), sizes, dataset.digest)

    return _Work(
        lambda: classifier.digest,
        inputs,
        lambda share: split.evaluate(
            classifier,
            _split(),
            measures,
            share,
            crops=_CROPS.value,
            is_half=_CALIBRATION.value == "half",
        ),
    )


def _split() -> str:
    return _SPLIT.value or "test"


def _evaluate_scores(logits: Path, taxonomy: str | None, measures: Measures) -> "Evaluated":
    from train.prediction.evaluating import scores

    given = scores.ScoreFiles(
        logits=logits,
        labels=_path(_LABELS),
        calibration_logits=_path(_CALIBRATION_LOGITS),
        calibration_labels=_path(_CALIBRATION_LABELS),
        class_counts=_path(_CLASS_COUNTS),
        taxonomy=taxonomy,
    )
    return scores.evaluate(given, measures, is_half=_CALIBRATION.value == "half")


def _finish(evaluated: "Evaluated", out: Path | None) -> None:
    """Shows the report, and writes what is to be written."""
    from train.evaluation import score_files
    from train.workdir import new_class_lines, new_data_lines

    report = evaluated.report
    # First, for the numbers are there whether they can be written or not.
    terminal.show_report(evaluated.title, report)
    new_data_lines.show(report)
    new_class_lines.show(report)
    written = {}
    scores = _path(_SCORES)
    if scores is not None:
        score_files.write_scores(
            scores, evaluated.examples, evaluated.class_counts, evaluated.class_names
        )
        written["scores"] = scores
    if _EXAMPLES.value is not None:
        written |= evaluated.write_examples(Path(_EXAMPLES.value))
    if _CALIBRATION_OUT.value is not None:
        written["thresholds"] = Path(_CALIBRATION_OUT.value)
    if out is not None:
        files.write_whole(out, json_files.sealed(report, indent=1))
        written["report"] = out
    figure = _path(_FIGURE)
    if figure is not None:
        from train.workdir import figure_style, rule_figure

        drawn = rule_figure.by_rule(report.get("conformal_rules", {}))
        files.write_whole(figure, figure_style.encode(drawn, figure.suffix))
        written["figure"] = figure
    terminal.show_files(written)


def _check_files(chosen: classifier_flags.ChosenClassifier, measures: Measures) -> None:
    """Refuses files that cannot be written, before anything is read."""
    kept = chosen.files
    given = [(flag.name, flag.value) for flag in _INPUTS] + [("costs", measures.costs)]
    for name, value in given:
        if value is not None:
            kept[Path(value)] = f"what --{name} is read from"
    for flag in _OUTPUTS:
        if flag.value is not None:
            kept[output_files.checked(flag.name, flag.value, kept)] = f"the file of --{flag.name}"
    if _EXAMPLES.value is not None:
        _check_examples(Path(_EXAMPLES.value), kept)
    if _FIGURE.value and (wrong := fields.one_of(SUFFIXES)(Path(_FIGURE.value).suffix)):
        must_be = f"a file whose suffix is {wrong}"
        raise UserError(field="--figure", must_be=must_be, got=Path(_FIGURE.value))


def _check_examples(path: Path, kept: Mapping[Path, str]) -> None:
    """Refuses a page and tables that cannot be written."""
    from train.evaluation import example_table

    if wrong := fields.one_of(_EXAMPLE_SUFFIXES)(path.suffix):
        raise UserError(field="--examples", must_be=f"a file whose suffix is {wrong}", got=path)
    for file in (path, *example_table.paths(path)):
        output_files.checked("examples", str(file), kept)


def _file_of_new_data(
    chosen: classifier_flags.ChosenClassifier, new: flags.FlagHolder
) -> Path | None:
    """The file in the workdir for the report, unless it has the report of other data."""
    workdir = chosen.workdir or chosen.features_run
    if workdir is None or _OUT.value is not None:
        return None
    place, is_half = _place(new), _RECALIBRATE.value is not None
    out = run_files.new_evaluation(Path(workdir), place.name, recalibrated=is_half)
    other = run_files.data_of_new_evaluation(out)
    if other not in (None, str(place)):
        raise UserError(f"{out} has the evaluation of {other}: give --out, or delete it")
    return out


def _place(new: flags.FlagHolder) -> Path:
    """Where new data are, from the root."""
    return Path(os.path.normpath(Path(new.value).expanduser().absolute()))


def _path(flag: flags.FlagHolder) -> Path | None:
    """The path that a flag gives, if it does."""
    return None if flag.value is None else Path(flag.value)


if __name__ == "__main__":
    command_line.run(main)
