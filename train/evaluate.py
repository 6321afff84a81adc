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

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import flags

from train.configuration.datasets import HOW_GROUPS_ARE_FOUND
from train.configuration.groups import TEN_CROPS
from train.evaluation import combinations, conformal_rules, metric, utilities
from train.evaluation.conformal_rules import ConformalRule
from train.foundation import command_line, fields, files, flag_rules, json_files
from train.foundation.errors import UserError
from train.foundation.flag_rules import Exclusive, Flag, Needed, Together
from train.papers.figures.catalogue import SUFFIXES
from train.prediction import classifier_flags, new_class_flags, rule_flags
from train.sharing import share_flags
from train.workdir import output_files, run_files, terminal

if TYPE_CHECKING:
    from train.evaluation.class_tree import ClassTree
    from train.evaluation.costs import Costs
    from train.evaluation.covariate_shift import LogWeights
    from train.evaluation.predictions import Predictions
    from train.evaluation.set_report import SetReport
    from train.prediction.evaluated import Evaluated
    from train.prediction.new_data import Asked
    from train.prediction.outliers import OutlierScore
    from train.prediction.trained import TrainedClassifier
    from train.sharing.work import Share

_SPLITS = ("test", "validation", "train", "balanced_test")
_DEFAULT_KS = (1, 3, 5)
_DEFAULT_COVERAGES = (0.8, 0.9, 0.95)
_ALL = "all"
# The formats of --examples.
_EXAMPLE_SUFFIXES = (".html", ".csv")
# The halves are drawn from it.
_SEED = 0

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
_MAX_ERROR = rule_flags.define_max_error()
_NEW_CLASSES = new_class_flags.define()
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
_KS = flags.DEFINE_string(
    "ks",
    None,
    "Sizes, and mean sizes, of sets, as 1,5; by default those of the run, with --logits 1, 3 and 5 "
    "as far as there are as many classes.",
)
_COVERAGES = flags.DEFINE_string(
    "coverages",
    None,
    "Probabilities that sets are to have the label with; may be empty. By default 0.8, 0.9 and "
    "0.95, as far as there are enough examples to calibrate on.",
)
_RULES = flags.DEFINE_list(
    "rules",
    None,
    "Conformal rules that are compared at each of --coverages, with commas between, or all. "
    f"{conformal_rules.IN_WORDS}.",
)
_UTILITY = flags.DEFINE_multi_string(
    "utility",
    [],
    f"A utility whose best sets are evaluated; may be given several times. {utilities.IN_WORDS}.",
)
_RISKS = flags.DEFINE_string(
    "risks", None, "Bounds of the mean cost of sets, as 0.1,0.2, by the costs of --costs."
)
_COSTS = rule_flags.define_costs()
_COMBINE = flags.DEFINE_string(
    "combine",
    None,
    "How the examples of an observation are combined, in the second reading of a split whose "
    f"examples have groups; by default {combinations.DEFAULT}. {combinations.IN_WORDS}.",
)
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
    *(_PROGRAM, _IMAGES, _TABLE, _FEATURES, _THRESHOLDS, _COSTS),
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
    rule_flags.MAX_ERROR,
    Flag(
        "allow_new",
        needs=("workdir", "features_run", "weights"),
        excludes=("coverages=",),
        because="the sets of a network with a coverage say it",
    ),
    new_class_flags.SCORE,
    Flag(
        "combine",
        fields.one_of(combinations.COMBINATIONS),
        excludes=_NEW,
        because="new data are evaluated example by example",
    ),
    Flag("calibration", fields.one_of(("all", "half"))),
    Flag("labels", needs=("logits",)),
    Flag("calibration_logits", needs=("logits",)),
    Flag("calibration_labels", needs=("calibration_logits",)),
    Flag("class_counts", needs=("logits",)),
    Flag("rules", excludes=("coverages=",), because="rules make sets of a coverage"),
    Together(("risks", "costs")),
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
    _check_flags(chosen)
    new = next((flag for flag in (_IMAGES, _TABLE, _FEATURES) if flag.value is not None), None)
    shared = _SHARE()
    if logits is not None:
        shared.refuse("--logits, which one process evaluates")
        _finish(_evaluate_scores(logits, chosen.taxonomy), _path(_OUT))
        return
    # Before it takes its time.
    out = _path(_OUT) or _usual_out(chosen, new)
    shared.check(out)
    from train.sharing import kinds
    from train.sharing.sharing import taking_part

    work = _work(chosen, new, program)
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
    chosen: classifier_flags.ChosenClassifier, new: flags.FlagHolder | None, program: Path | None
) -> _Work:
    """What the flags evaluate."""
    from train.prediction import classifiers, exported_classifier, new_data

    if new is None:
        return _work_of_split(classifiers.load(chosen))
    asked = _asked(new, chosen)
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


def _work_of_split(classifier: "TrainedClassifier") -> _Work:
    from train.sharing import kinds

    def inputs() -> str:
        dataset = classifier.load_dataset()
        sizes = [len(getattr(dataset, split)) for split in ("train", "validation", "test")]
        return kinds.digest(classifier.spec.name, _split(), sizes, dataset.digest)

    return _Work(
        lambda: classifier.digest, inputs, lambda share: _evaluate_split(classifier, share)
    )


def _split() -> str:
    return _SPLIT.value or "test"


def _evaluate_split(classifier: "TrainedClassifier", share: "Share") -> "Evaluated":
    from train.evaluation import bayes, example_names
    from train.prediction import new_class_report, outliers
    from train.prediction.evaluated import Evaluated
    from train.prediction.other_calibrations import NewCalibration
    from train.sharing.sharing import WritesPart
    from train.sharing.work import PartWritten

    split = _split()
    spec, class_counts = classifier.spec, classifier.class_counts
    ks = _ks(classifier.num_classes) or [*classifier.config.eval.ks]
    dataset = classifier.load_dataset()
    if getattr(dataset, split) is None:
        raise UserError(
            f"--split must not be {split} with the data set {spec.name}: it has no such test set"
        )
    score = _outlier_score(classifier)
    crops = _crops(classifier)

    def predict(split: str) -> "Predictions":
        found = classifier.predict(split, crops=crops, share=share)
        if score is None:
            return found
        return outliers.measure(found, score, getattr(dataset, split), split, share)

    if isinstance(share, WritesPart):
        for name in dict.fromkeys((split, "validation")):
            share.only(partial(classifier.predict, name, crops=crops, share=share))
            if score is not None:
                share.only(partial(outliers.of_split, score, getattr(dataset, name), name, share))
        raise PartWritten
    examples = predict(split)
    same = split == "validation"
    calibrated_on = examples if same else predict("validation")
    chosen, others = _divided(len(examples.labels), len(calibrated_on.labels), same=same)
    class_names = (*classifier.classes.names, *dataset.unseen_class_names)
    report = _report(
        examples.take(chosen),
        calibrated_on.take(others),
        ks,
        class_counts,
        class_names,
        log_weights=None,
        tree=classifier.tree,
    )
    document = report.to_json()
    if score is not None:
        document["none_of_these"] = new_class_report.report(
            examples.take(chosen),
            score,
            NewCalibration(classifier, calibrated_on.take(others)),
            _coverages_with_new(len(others)),
            _rules(examples, calibrated_on, class_counts, classifier.tree),
        )
    document |= _sure_answers(examples.take(chosen), calibrated_on.take(others))
    if spec.true_distribution is not None:
        best = bayes.summarize(
            spec.true_distribution,
            getattr(dataset, split).take(chosen),
            dataset.validation.take(others),
            ks,
            class_counts,
            balanced=split == "balanced_test",
        )
        document["bayes"] = metric.to_json(best)
        document["gap_to_bayes"] = metric.to_json(bayes.gap(best, report.metrics))
        # Where all classes are as frequent, others are the best.
        if classifier.tree is not None and split != "balanced_test":
            document["bayes_ranks"] = bayes.accuracies_by_rank(
                spec.true_distribution, getattr(dataset, split).take(chosen), classifier.tree, ks
            )
    about: dict[str, Any] = {
        "split": split,
        "config": classifier.config.to_plain(),
        "calibrated_on": _calibrated_on("validation examples", same=same),
    }
    _, origin = classifier.origin
    title = f"{spec.name}, {origin}, {split} split"
    if crops != 1:
        about["crops"] = crops
        title += f", {crops} crops of each image"
    if left_out := len(getattr(dataset, split)) - len(examples.labels):
        about["left_out"] = left_out
        title += f" (images left out as unreadable: {left_out:,})"
    return Evaluated(
        title=title,
        report=about | document,
        examples=example_names.named(examples.take(chosen), getattr(dataset, split), spec.inputs),
        class_names=class_names,
        class_counts=class_counts,
        split=getattr(dataset, split),
        inputs=spec.inputs,
    )


def _crops(classifier: "TrainedClassifier") -> int:
    """How many crops of each image are averaged."""
    crops: int = _CROPS.value or classifier.config.eval.crops
    if crops != 1 and not classifier.spec.has_images:
        raise UserError(f"--crops must be 1 for {classifier.spec.inputs}; got {crops}")
    if crops != 1 and classifier.temperature is not None:
        raise UserError(
            f"--crops must be 1 for a run with config.eval.temperature; got {crops}: the "
            "temperature is for the middle of images"
        )
    return crops


def _outlier_score(classifier: "TrainedClassifier") -> "OutlierScore | None":
    """The outlier score that the flags ask for."""
    from train.prediction import outliers

    name = new_class_flags.chosen(**_NEW_CLASSES())
    return None if name is None else outliers.of_classifier(classifier, name)


def _sure_answers(examples: "Predictions", calibrated_on: "Predictions") -> dict[str, Any]:
    """What is reported of answers with a bounded error, if it is asked for."""
    from train.evaluation import selective

    error = _MAX_ERROR.value
    if error is None:
        return {}
    return {
        "selective": selective.report(examples, error, selective.threshold(calibrated_on, error))
    }


def _asked(new: flags.FlagHolder, chosen: classifier_flags.ChosenClassifier) -> "Asked":
    """What the flags ask about new data."""
    from train.prediction.new_data import Asked

    return Asked(
        flag=new.name,
        path=Path(new.value),
        place=_place(new),
        group=_GROUP.value,
        ks=_ks,
        are_ks_given=_KS.value is not None,
        coverages=_coverages,
        are_coverages_given=_COVERAGES.value is not None,
        rules=lambda examples, counts, tree: _rules(examples, examples, counts, tree),
        is_half=_RECALIBRATE.value is not None,
        thresholds=_path(_THRESHOLDS),
        calibration_out=_path(_CALIBRATION_OUT),
        utilities=_utilities(),
        risks=_risks(),
        costs=_COSTS.value,
        taxonomy=chosen.taxonomy,
        max_error=_MAX_ERROR.value,
        new_score=new_class_flags.chosen(**_NEW_CLASSES()),
        coverages_with_new=_coverages_with_new,
    )


def _evaluate_scores(logits: Path, taxonomy: str | None) -> "Evaluated":
    from train.evaluation import score_files
    from train.prediction import trained
    from train.prediction.evaluated import Evaluated

    examples = score_files.read_scores(logits, _path(_LABELS), flag="logits")
    num_classes = examples.scores.shape[1]
    calibration_logits = _path(_CALIBRATION_LOGITS)
    same = calibration_logits is None
    calibrated_on = examples
    if calibration_logits is not None:
        calibrated_on = score_files.read_scores(
            calibration_logits, _path(_CALIBRATION_LABELS), flag="calibration_logits"
        )
        if calibrated_on.scores.shape[1] != num_classes:
            raise UserError(
                f"--calibration_logits must have the {num_classes} classes of --logits; it has "
                f"{calibrated_on.scores.shape[1]}"
            )
    ks = _ks(num_classes) or [k for k in _DEFAULT_KS if k <= num_classes]
    class_counts = _class_counts(logits, num_classes)
    class_names = score_files.class_names_beside(logits, num_classes)
    tree = None
    if taxonomy is not None:
        if class_names is None:
            raise UserError(
                f"--taxonomy needs the names of the classes; {logits} has no array class_names"
            )
        tree = trained.tree_of(taxonomy, class_names)
    chosen, others = _divided(len(examples.labels), len(calibrated_on.labels), same=same)
    weights = None
    if calibration_logits is not None:
        weights = _log_weights(logits, examples, calibration_logits, calibrated_on)
    report = _report(
        examples.take(chosen),
        calibrated_on.take(others),
        ks,
        class_counts,
        class_names,
        None if weights is None else weights.take(chosen, others),
        tree,
    )
    others_are = "examples of --calibration_logits"
    about = {"logits": str(logits), "calibrated_on": _calibrated_on(others_are, same=same)}
    about |= _sure_answers(examples.take(chosen), calibrated_on.take(others))
    named = dataclasses.replace(examples, names=examples.names_or_numbers())
    return Evaluated(
        title=str(logits),
        report=about | report.to_json(),
        examples=named.take(chosen),
        class_names=class_names or [str(index) for index in range(num_classes)],
        class_counts=class_counts,
    )


def _log_weights(
    logits: Path,
    examples: "Predictions",
    calibration_logits: Path,
    calibrated_on: "Predictions",
) -> "LogWeights | None":
    """The weights of a covariate shift, if both files have them."""
    from train.evaluation import score_files
    from train.evaluation.covariate_shift import LogWeights

    found, others = (
        score_files.log_weights_beside(path, len(given.labels), flag=flag)
        for path, given, flag in (
            (logits, examples, "logits"),
            (calibration_logits, calibrated_on, "calibration_logits"),
        )
    )
    if found is None and others is None:
        return None
    if found is None or others is None:
        raise UserError("--logits and --calibration_logits must both have log_weights, or neither")
    return LogWeights(found, others)


def _report(
    examples: "Predictions",
    calibrated_on: "Predictions",
    ks: list[int],
    class_counts: np.ndarray | None,
    class_names: Sequence[str] | None,
    log_weights: "LogWeights | None",
    tree: "ClassTree | None",
) -> "SetReport":
    from train.evaluation.set_report import set_report

    return set_report(
        examples,
        calibrated_on,
        ks=ks,
        coverages=_coverages(len(calibrated_on.labels)),
        class_counts=class_counts,
        rules=_rules(examples, calibrated_on, class_counts, tree),
        utilities=_utilities(),
        risks=_risks(),
        costs=_costs(examples.scores.shape[-1], class_names, class_counts, tree),
        log_weights=log_weights,
        class_names=class_names,
        tree=tree,
        combined_by=_COMBINE.value or combinations.DEFAULT,
    )


def _utilities() -> list[str]:
    for text in _UTILITY.value:
        if wrong := utilities.wrong(text):
            raise UserError(field="--utility", must_be=wrong, got=text)
    return list(dict.fromkeys(_UTILITY.value))


def _risks() -> list[float]:
    return [] if _RISKS.value is None else _several(_RISKS, float, fields.Number(above=0))


def _costs(
    num_classes: int,
    class_names: Sequence[str] | None,
    class_counts: np.ndarray | None,
    tree: "ClassTree | None",
) -> "Costs | None":
    from train.evaluation import named_costs

    if _COSTS.value is None:
        return None
    names = class_names or [str(index) for index in range(num_classes)]
    return named_costs.named(_COSTS.value, names[:num_classes], class_counts, tree)


def _rules(
    examples: "Predictions",
    calibrated_on: "Predictions",
    class_counts: np.ndarray | None,
    tree: "ClassTree | None",
) -> list[ConformalRule]:
    """The requested rules; for "all", the rules that can be calibrated."""
    from train.evaluation import conformal_sets

    chosen = []
    for rule in _named_rules():
        reasons = (
            conformal_sets.why_not(rule, given.scores, class_counts, tree)
            for given in (examples, calibrated_on)
        )
        reason = next(filter(None, reasons), None)
        if reason is None:
            chosen.append(rule)
        elif _RULES.value != [_ALL]:
            raise UserError(f"--rules: {reason}")
    return chosen


def _named_rules() -> list[ConformalRule]:
    names = _RULES.value or []
    if names == [_ALL]:
        return list(conformal_rules.RULES.values())
    if _ALL in names:
        raise UserError("--rules must be all alone, or rules with commas between; got both")
    return [conformal_rules.named("rules", name) for name in dict.fromkeys(names)]


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


def _divided(
    num_examples: int, num_calibration: int, *, same: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the examples that are evaluated, and of those that are calibrated on."""
    if _CALIBRATION.value != "half":
        return np.arange(num_examples), np.arange(num_calibration)
    if num_calibration < 2:
        raise UserError("--calibration=half needs at least two examples to calibrate on; got 1")
    order = np.random.default_rng(_SEED).permutation(num_calibration)
    half, rest = np.sort(order[: num_calibration // 2]), np.sort(order[num_calibration // 2 :])
    return rest if same else np.arange(num_examples), half


def _calibrated_on(others: str, *, same: bool) -> str:
    """In words, what thresholds were calibrated on."""
    if _CALIBRATION.value != "half":
        return "the same examples" if same else others
    return "the other half of the examples" if same else f"half of the {others}"


def _class_counts(logits: Path, num_classes: int) -> np.ndarray | None:
    from train.evaluation import score_files

    path = _path(_CLASS_COUNTS)
    if path is None:
        return score_files.class_counts_beside(logits, num_classes)
    counts = score_files.read_integers(path, flag="class_counts")
    if len(counts) != num_classes or counts.min() < 0:
        smallest = f", the smallest of them {counts.min()}" if counts.size else ""
        raise UserError(
            f"--class_counts must be the number of training images of each of the {num_classes} "
            f"classes; {path} has {len(counts)} numbers{smallest}"
        )
    return counts


def _check_flags(chosen: classifier_flags.ChosenClassifier) -> None:
    """Refuses flags that are wrong before anything is read."""
    kept = chosen.files
    for flag in _INPUTS:
        if flag.value is not None:
            kept[Path(flag.value)] = f"what --{flag.name} is read from"
    for flag in _OUTPUTS:
        if flag.value is not None:
            kept[output_files.checked(flag.name, flag.value, kept)] = f"the file of --{flag.name}"
    if _EXAMPLES.value is not None:
        _check_examples(Path(_EXAMPLES.value), kept)
    _check_rules()
    _utilities()
    _risks()
    _coverages(0)
    _ks(None)


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


def _check_rules() -> None:
    """Refuses rules that do not exist, and figures of other formats."""
    _named_rules()
    if _FIGURE.value and (wrong := fields.one_of(SUFFIXES)(Path(_FIGURE.value).suffix)):
        must_be = f"a file whose suffix is {wrong}"
        raise UserError(field="--figure", must_be=must_be, got=Path(_FIGURE.value))


def _coverages(num_examples: int) -> list[float]:
    """The requested coverages, or the default ones that this number of examples suffices for."""
    from train.evaluation import thresholds

    return _possible_coverages(num_examples, thresholds.fewest_examples)


def _coverages_with_new(num_examples: int) -> list[float]:
    """The same for sets that may say "none of these"."""
    from train.evaluation import new_classes

    coverages = _possible_coverages(num_examples, new_classes.fewest_examples)
    if not coverages:
        new_classes.check_enough(num_examples, min(_DEFAULT_COVERAGES))
    return coverages


def _possible_coverages(num_examples: int, fewest_examples: Callable[[float], int]) -> list[float]:
    if _COVERAGES.value is None:
        return [one for one in _DEFAULT_COVERAGES if num_examples >= fewest_examples(one)]
    return _several(_COVERAGES, float, fields.Number(above=0, below=1)) if _COVERAGES.value else []


def _ks(num_classes: int | None) -> list[int]:
    if _KS.value is None:
        return []
    reason = "" if num_classes is None else "the number of classes"
    return _several(_KS, int, fields.integer(1, num_classes, reason))


def _several(flag: flags.FlagHolder, read: type, field: fields.Field) -> list[Any]:
    """The numbers of a flag, between commas."""
    values = []
    for text in flag.value.split(","):
        try:
            value = read(text)
        except ValueError:
            value = text
        if wrong := field(value):
            raise UserError(
                field=f"--{flag.name}", must_be=f"numbers between commas, each {wrong}", got=text
            )
        values.append(value)
    return sorted(set(values))


def _path(flag: flags.FlagHolder) -> Path | None:
    """The path that a flag gives, if it does."""
    return None if flag.value is None else Path(flag.value)


if __name__ == "__main__":
    command_line.run(main)
