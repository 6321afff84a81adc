"""The model card of an exported classifier: a Markdown page with a head that model hubs read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.classifiers.trained import TrainedClassifier
from train.foundation.console import printable
from train.reports import metric
from train.reports.metric import Metric
from train.reports.rules import SetRule

_TASKS = {"images": "image-classification", "features": "tabular-classification"}
# The rules that promise how often a set has the right class, or what errors cost.
_PROMISING = ("coverage", "average_error", "max_error", "risk")
_PROMISE = (
    "This is a promise on average, over examples that are drawn like those that it was calibrated "
    "on, and not for other cameras, places or seasons. To test it on new labelled examples: "
    "`python -m train.evaluate --weights=FILE --images=FOLDER`."
)
_NONE = "These sets do not promise how often they have the right class."


def write(
    classifier: TrainedClassifier, rule: SetRule | None, name: str, numbers: str = ""
) -> bytes:
    """The page, in UTF-8.

    Args:
        classifier: the classifier.
        rule: what makes its sets; None for a file of weights.
        name: the name of the exported file.
        numbers: how the numbers of the file differ from those of the classifier, in a sentence.
    """
    accuracies = {
        one: value
        for one, value in metric.from_json(classifier.results.get("test", {})).items()
        if one.is_accuracy and one.average in ("micro", "macro") and value is not None
    }
    kind, origin = classifier.origin
    # The folder of the file is the user's own affair.
    how = f"trained with the loss {origin}" if kind == "loss" else f"of {Path(origin).name}"
    what = f"A classifier of {classifier.inputs} with {len(classifier.classes):,} classes"
    what = f"{what}: the network {classifier.network_name}, {how}."
    sections = [_head(classifier, accuracies), f"# {_plain(name)}", _plain(what)]
    if rule is not None:
        promise = _PROMISE if rule.name in _PROMISING else _NONE
        sections += ["## Sets", _plain(rule.in_words), promise]
    spec, counts = classifier.spec, classifier.classes.training_images
    licence = spec.attribution or "not known to the program"
    data = [f"- data set: {_plain(spec.name)}", f"- attribution and licence: {_plain(licence)}"]
    if any(counts):
        of_class = f"from {min(counts):,} to {max(counts):,} of a class"
        data.append(f"- training examples: {sum(counts):,}, {of_class}")
    lines = [f"- {one.in_words}: {one.format(value)}" for one, value in accuracies.items()]
    sections += ["## Data", "\n".join(data), "## Accuracies", *filter(None, [numbers])]
    sections += ["On the test split:", "\n".join(lines)] if lines else ["Not tested."]
    return ("\n\n".join(sections) + "\n").encode()


def _head(classifier: TrainedClassifier, accuracies: Mapping[Metric, float]) -> str:
    """The head; JSON values are YAML, too."""
    name, task = classifier.spec.name, _TASKS[classifier.inputs]
    entries: dict[str, Any] = {
        "library_name": "topk_jax",
        "pipeline_tag": task,
        "tags": ["jax", "set-valued-classification"],
    }
    if accuracies:
        data = {"type": name, "name": name, "split": "test"}
        found = [
            {"type": "accuracy", "name": one.in_words, "value": value}
            for one, value in accuracies.items()
        ]
        result = {"task": {"type": task}, "dataset": data, "metrics": found}
        entries["model-index"] = [{"name": classifier.network_name, "results": [result]}]
    return "\n".join(["---", *(f"{key}: {json.dumps(one)}" for key, one in entries.items()), "---"])


def _plain(text: str) -> str:
    """A text whose characters Markdown shows as they are, on one line."""
    return "".join(f"\\{one}" if one in "\\`*_{}[]<>#|" else one for one in printable(text))
