"""The ONNX file of a classifier and its rule, with its own numbers, limits and description."""

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from train.classifiers import fitted
from train.classifiers.trained import TrainedClassifier
from train.data.dataset import INPUT_DTYPES
from train.foundation import files
from train.foundation.errors import UserError
from train.package import card, program
from train.package.onnx import checking, lowering
from train.reports.rules import SetRule
from train.run.parts import assemble


@dataclasses.dataclass(frozen=True)
class Exported:
    """An ONNX file that is checked.

    Attributes:
        content: its bytes.
        description: its own description.
        checked: what the comparison with JAX has found, in words.
        card: the model card of the file of a name.
    """

    content: bytes
    description: dict[str, Any]
    checked: str
    card: Callable[[str], bytes]


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
    adapted = adapt(classifier, half=half, has_calibration=calibration is not None)
    fit = fitted.find(adapted, rule, calibration)
    description = describe(classifier, fit, half=half)
    content = serialize(adapted, fit, description)
    numbers = ""
    if adapted is not classifier:
        numbers = (
            f"The file stores weights as {description['onnx']['weights']} and computes in 32 bits. "
            "The limits of its sets are fitted with these numbers. What was tested are the "
            "numbers of the run."
        )
    checked = checking.check(adapted, fit, content)
    # The accuracies of the card were measured with the numbers of the run.
    of_name = functools.partial(card.write, classifier, fit, numbers=numbers)
    return Exported(content, description, checked, of_name)


def serialize(classifier: TrainedClassifier, rule: SetRule, description: dict[str, Any]) -> bytes:
    """The contents of the file of a classifier of `adapt`, for any number of examples from 1 on.

    Raises:
        UserError: ONNX has no form of an operation, or the file would be too large.
    """
    return lowering.make(
        program.make(classifier, rule),
        classifier.inputs,
        classifier.shape,
        INPUT_DTYPES[classifier.inputs],
        list(description["outputs"]),
        json.loads(files.to_json(description)),
        half=description["onnx"]["weights"] == "float16",
    )


def describe(classifier: TrainedClassifier, rule: SetRule, *, half: bool) -> dict[str, Any]:
    """What a user of the file needs to know."""
    found = program.describe(classifier, rule)
    del found["platforms"], found["jax"]
    return {**found, "onnx": {"opset": lowering.OPSET, "weights": "float16" if half else "float32"}}


def adapt(classifier: TrainedClassifier, *, half: bool, has_calibration: bool) -> TrainedClassifier:
    """The classifier with the numbers of the file, for which its rule is fitted.

    ONNX Runtime does not convolve numbers of bfloat16, so a network in half precision computes in
    32 bits. With `half`, matrices and kernels are rounded to 16 bits, and computed in 32.

    Raises:
        UserError: limits are given, and are for other numbers; or a weight is too large.
    """
    config = classifier.config
    if not half and not config.model.half_precision:
        return classifier
    if classifier.run is not classifier:
        what = "--float16" if half else "--format=onnx of a head with model.half_precision"
        raise UserError(
            f"{what} is not for a run on features together with its network: limits would need "
            "features of the network as it is in the file"
        )
    if has_calibration:
        why = "--float16 rounds" if half else "a network in half precision computes"
        raise UserError(
            "--calibration has limits for the run's own numbers, and the limits of this file are "
            f"fitted with its own: {why} in another way; leave it out"
        )
    model = dataclasses.replace(config.model, half_precision=False)
    config = dataclasses.replace(config, model=model)
    parts = assemble(config, classifier.parts.data.facts, workdir=classifier.workdir)
    params = jax.tree.map(_rounded, classifier.params) if half else classifier.params
    # Without the workdir, no rule that is kept there is used, and none is kept.
    return dataclasses.replace(classifier, workdir=None, parts=parts, params=params)


def _rounded(weights: Any) -> np.ndarray:
    """Weights as 16 bits have them; few numbers, such as factors of norms, as they are."""
    numbers = np.asarray(weights)
    if numbers.ndim < 2:
        return numbers
    with np.errstate(over="ignore"):
        found = numbers.astype(np.float16)
    if np.isinf(found).any():
        raise UserError("--float16 cannot store weights above 65,504, and the network has some")
    return found.astype(numbers.dtype)
