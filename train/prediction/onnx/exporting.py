"""Makes the ONNX file of a classifier and its rule, with its own description."""

import json
from dataclasses import dataclass
from typing import Any

from train.data.dataset import INPUT_DTYPES
from train.foundation import files
from train.prediction import calibrated_rule, exported_program, inference, model_card
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.onnx import checking, model, portable, precision
from train.prediction.rule_flags import ChosenRule
from train.prediction.trained import TrainedClassifier


@dataclass(frozen=True)
class Exported:
    """An ONNX file that is checked, and what it was made from.

    Attributes:
        classifier: the classifier with the numbers of the file.
        original: the classifier with its own numbers, and its workdir.
        rule: its rule, with thresholds for these numbers.
        content: the bytes of the file.
        description: its own description.
        checked: what the comparison with JAX has found.
    """

    classifier: TrainedClassifier
    original: TrainedClassifier
    rule: CalibratedRule
    content: bytes
    description: dict[str, Any]
    checked: checking.Checked

    def card(self, name: str) -> bytes:
        """The model card of the file of this name."""
        numbers = ""
        if self.classifier is not self.original:
            numbers = (
                f"The file stores weights as {self.description['onnx']['weights']} and computes in "
                "32 bits. The limits of its sets are calibrated with these numbers. What was "
                "tested are the numbers of the run."
            )
        return model_card.write(self.original, self.rule, name, numbers)


def export(classifier: TrainedClassifier, rule: ChosenRule, *, half: bool) -> Exported:
    """Calibrates a rule, makes the file, and compares it with JAX.

    Args:
        classifier: the classifier.
        rule: the rule that is asked for.
        half: whether weights are stored in 16 bits.

    Raises:
        UserError: the rule cannot be calibrated, ONNX has no form of an operation, or the file
            differs from JAX.
    """
    adapted = precision.adapted(classifier, rule, half=half)
    calibrated = calibrated_rule.calibrate(adapted, rule)
    description = describe(classifier, calibrated, half=half)
    content = serialize(adapted, calibrated, description, half=half)
    checked = checking.check(adapted, calibrated, content)
    return Exported(adapted, classifier, calibrated, content, description, checked)


def serialize(
    classifier: TrainedClassifier, rule: CalibratedRule, description: dict[str, Any], *, half: bool
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
    inputs = classifier.spec.inputs
    return model.make(
        inference.make(classifier, rule, portable.answer(rule)),
        inputs,
        classifier.image_shape,
        INPUT_DTYPES[inputs],
        list(exported_program.outputs(classifier, rule)),
        json.loads(files.to_json(description)),
        half=half,
    )


def describe(classifier: TrainedClassifier, rule: CalibratedRule, *, half: bool) -> dict[str, Any]:
    """What a user of the file needs to know.

    Args:
        classifier: the classifier, with its workdir.
        rule: the rule.
        half: whether weights are stored in 16 bits.
    """
    found = exported_program.describe(classifier, rule)
    of_jax = {"platforms", "jax"}
    return {
        **{name: value for name, value in found.items() if name not in of_jax},
        "onnx": {"opset": model.OPSET, "weights": "float16" if half else "float32"},
    }
