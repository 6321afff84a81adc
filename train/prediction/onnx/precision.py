"""The classifier with the numbers of an ONNX file: computed in 32 bits, stored in 32 or 16."""

import dataclasses
from typing import Any

import jax
import numpy as np

from train.assembly import assemble
from train.foundation.errors import UserError
from train.prediction.rule_flags import ChosenRule
from train.prediction.trained import TrainedClassifier


def needs_new_thresholds(classifier: TrainedClassifier, *, half: bool) -> bool:
    """Whether the numbers of the file differ from the numbers that the run's thresholds are for."""
    return half or classifier.config.model.half_precision


def adapted(classifier: TrainedClassifier, rule: ChosenRule, *, half: bool) -> TrainedClassifier:
    """The classifier as the file has it, whose thresholds are calibrated with these numbers.

    ONNX Runtime does not convolve numbers of bfloat16, so a network in half precision computes in
    32 bits. With `half`, matrices and kernels are rounded to 16 bits, and computed in 32.

    Args:
        classifier: the classifier.
        rule: the rule that is asked for.
        half: whether weights are stored in 16 bits.

    Raises:
        UserError: the given thresholds are for other numbers, or a weight is too large.
    """
    if not needs_new_thresholds(classifier, half=half):
        return classifier
    if classifier.of_run is not classifier:
        raise UserError(
            "--float16 is not for a run on features together with its network: thresholds would "
            "need features of the rounded network; leave it out, or give --takes=features"
        )
    if rule.thresholds is not None:
        why = "--float16 rounds" if half else "a network in half precision computes"
        raise UserError(
            "--thresholds are of the run's own numbers, and the thresholds of this file are "
            f"calibrated with its own: {why} in another way; leave it out"
        )
    config = classifier.config
    if config.model.half_precision:
        model = dataclasses.replace(config.model, half_precision=False)
        config = dataclasses.replace(config, model=model)
    assembly = assemble(config, classifier.assembly.data.facts, workdir=classifier.workdir)
    params = jax.tree.map(_rounded, classifier.params) if half else classifier.params
    # Without the workdir, no threshold that is stored there is used, and none is stored.
    return dataclasses.replace(classifier, workdir=None, assembly=assembly, params=params)


def _rounded(weights: Any) -> np.ndarray:
    numbers = np.asarray(weights)
    if numbers.ndim < 2:
        # Few numbers, such as factors of norms.
        return numbers
    with np.errstate(over="ignore"):
        found = numbers.astype(np.float16)
    if np.isinf(found).any():
        raise UserError("--float16 cannot store weights above 65,504, and the network has some")
    return found.astype(numbers.dtype)
