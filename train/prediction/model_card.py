"""The model card of an exported classifier: a Markdown page with a head that model hubs read."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from topk_jax import metrics
from train.classifiers.trained import TrainedClassifier
from train.foundation.console import printable
from train.reports import metric
from train.reports.metric import SHOTS, Average
from train.reports.rules import SetRule

_TASKS = {"images": "image-classification", "features": "tabular-classification"}
_COLUMNS: tuple[Average, ...] = ("micro", "macro", *SHOTS)
_HEADS = ("accuracy", "all examples", "mean over classes", "few shots", "medium", "many")


def write(
    classifier: TrainedClassifier, rule: SetRule | None, name: str, numbers: str = ""
) -> bytes:
    """The page, in UTF-8.

    Args:
        classifier: the classifier.
        rule: what makes its sets; None for a file of weights.
        name: the name of the exported file.
        numbers: how the numbers of the file differ from the numbers of the classifier, in a
            sentence.
    """
    found = metric.from_json(classifier.results.get("test", {}))
    measured = {one: value for one, value in found.items() if value is not None}
    sections = [
        _head(classifier, measured),
        f"# {_plain(name)}",
        _what(classifier),
        *([] if rule is None else _sets(rule)),
        _data(classifier),
        "## Test",
        *filter(None, [numbers]),
        *_quality(classifier, measured),
    ]
    return ("\n\n".join(sections) + "\n").encode()


def _head(classifier: TrainedClassifier, measured: Mapping[metric.Metric, float]) -> str:
    """The head; JSON values are YAML, too."""
    name, task = classifier.spec.name, _TASKS[classifier.inputs]
    entries: dict[str, Any] = {
        "library_name": "topk_jax",
        "pipeline_tag": task,
        "tags": ["jax", "set-valued-classification"],
        "metrics": ["accuracy"],
    }
    accuracies = [
        {"type": "accuracy", "name": one.in_words, "value": value}
        for one, value in measured.items()
        if one.is_accuracy
    ]
    if accuracies:
        data = {"type": name, "name": name, "split": "test"}
        result = {"task": {"type": task}, "dataset": data, "metrics": accuracies}
        entries["model-index"] = [{"name": classifier.network_name, "results": [result]}]
    lines = (f"{key}: {json.dumps(value)}" for key, value in entries.items())
    return "\n".join(["---", *lines, "---"])


def _what(classifier: TrainedClassifier) -> str:
    kind, origin = classifier.origin
    # The folder of the file is the user's own affair.
    weights = f"with the weights of {Path(origin).name}"
    trained = f"trained with the loss {origin}" if kind == "loss" else weights
    return _plain(
        f"A classifier of {classifier.inputs} with {len(classifier.classes):,} classes: the "
        f"network {classifier.network_name}, {trained}."
    )


def _sets(rule: SetRule) -> Iterator[str]:
    """Which classes are in a set, and for what that holds."""
    yield f"## Sets\n\n{_plain(rule.in_words)}"
    if rule.name in ("coverage", "average_error", "max_error", "risk"):
        of_classes = rule.rule.conformal == "class_conditional"
        but = "" if of_classes else "each class by itself, for "
        yield (
            "This is a promise on average, over examples that are drawn like those that it was "
            f"calibrated on. It does not hold for {but}other cameras, places or seasons, or for "
            "examples of classes that the classifier does not know. To test it on new labelled "
            "examples: `python -m train.evaluate --program`."
        )
    else:
        yield "These sets do not promise how often they have the right class."


def _data(classifier: TrainedClassifier) -> str:
    spec, counts = classifier.spec, np.array(classifier.classes.training_images)
    licence = spec.attribution or "not known to the program; ask whoever made the data set"
    lines = ["## Data", "", f"- data set: {_plain(spec.name)}"]
    lines += [f"- attribution and licence of the data: {_plain(licence)}"]
    if counts.any():
        lines += [
            f"- training examples: {counts.sum():,}",
            f"- training examples of a class: from {counts.min():,} to {counts.max():,}, in the "
            f"median {np.median(counts):,g}",
        ]
    return "\n".join(lines)


def _quality(
    classifier: TrainedClassifier, measured: Mapping[metric.Metric, float]
) -> Iterator[str]:
    """The accuracies on the test split, by the size of the classes."""
    if not measured:
        yield "The program has not tested this classifier."
        return
    rows = [_HEADS, ("---", *["---:"] * len(_COLUMNS))]
    for kind, k in dict.fromkeys((one.rule, one.k) for one in measured):
        if kind is not None and k is not None:
            each = (metric.Metric.accuracy(kind, k, average) for average in _COLUMNS)
            rows.append((f"{kind}-{k}", *(one.format(measured.get(one)) for one in each)))
    yield "\n".join(f"| {' | '.join(row)} |" for row in rows)
    groups = metrics.shot_groups(np.array(classifier.classes.training_images))
    sizes = (f"{np.sum(groups[shot]):,} of {shot}" for shot in SHOTS)
    yield (
        "On the test split of the data set. An average-K rule has sets of K classes on average. "
        f"Classes by their training examples, few below 20 and many above 100: {', '.join(sizes)} "
        "shots."
    )


def _plain(text: str) -> str:
    """A text whose characters Markdown shows as they are, on one line."""
    return "".join(f"\\{one}" if one in "\\`*_{}[]<>#|" else one for one in printable(text))
