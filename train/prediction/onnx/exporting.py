"""Makes the ONNX file of a classifier and its rule, with its own description."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.classifiers import fitted
from train.classifiers.trained import TrainedClassifier
from train.data.dataset import INPUT_DTYPES
from train.foundation import files
from train.prediction import exported_program, model_card
from train.prediction.onnx import checking, model, precision
from train.reports.rules import SetRule


@dataclass(frozen=True)
class Exported:
    """An ONNX file that is checked, and what it was made from.

    Attributes:
        classifier: the classifier with the numbers of the file.
        original: the classifier with its own numbers, and its workdir.
        rule: its rule, with limits for these numbers.
        content: the bytes of the file.
        description: its own description.
        checked: what the comparison with JAX has found.
    """

    classifier: TrainedClassifier
    original: TrainedClassifier
    rule: SetRule
    content: bytes
    description: dict[str, Any]
    checked: checking.Checked

    def card(self, name: str) -> bytes:
        """The model card of the file of this name."""
        numbers = ""
        if self.classifier is not self.original:
            numbers = (
                f"The file stores weights as {self.description['onnx']['weights']} and computes in "
                "32 bits. The limits of its sets are fitted with these numbers. What was "
                "tested are the numbers of the run."
            )
        return model_card.write(self.original, self.rule, name, numbers)


def export(
    classifier: TrainedClassifier, rule: SetRule, calibration: Path | None, *, half: bool
) -> Exported:
    """Fits a rule, makes the file, and compares it with JAX.

    Args:
        classifier: the classifier.
        rule: the rule that is asked for.
        calibration: a file with its limits; None for those of the run.
        half: whether weights are stored in 16 bits.

    Raises:
        UserError: the rule cannot be fitted, ONNX has no form of an operation, or the file differs
            from JAX.
    """
    adapted = precision.adapted(classifier, half=half, has_calibration=calibration is not None)
    with_limits = fitted.find(adapted, rule, calibration)
    description = describe(classifier, with_limits, half=half)
    content = serialize(adapted, with_limits, description, half=half)
    checked = checking.check(adapted, with_limits, content)
    return Exported(adapted, classifier, with_limits, content, description, checked)


def serialize(
    classifier: TrainedClassifier, rule: SetRule, description: dict[str, Any], *, half: bool
) -> bytes:
    """The contents of the file, for any number of examples from 1 on.

    Args:
        classifier: the classifier, as `precision.adapted` has it.
        rule: the rule.
        description: the description of the file, by `describe`.
        half: whether weights are stored in 16 bits.

    Raises:
        UserError: ONNX has no form of an operation, or the file would be too large.
    """
    return model.make(
        exported_program.make(classifier, rule, sorting=True),
        classifier.inputs,
        classifier.shape,
        INPUT_DTYPES[classifier.inputs],
        list(exported_program.outputs(classifier, rule)),
        json.loads(files.to_json(description)),
        half=half,
    )


def describe(classifier: TrainedClassifier, rule: SetRule, *, half: bool) -> dict[str, Any]:
    """What a user of the file needs to know.

    Args:
        classifier: the classifier, with its workdir.
        rule: the rule.
        half: whether weights are stored in 16 bits.
    """
    found = exported_program.describe(classifier, rule)
    del found["platforms"], found["jax"]
    return {**found, "onnx": {"opset": model.OPSET, "weights": "float16" if half else "float32"}}
