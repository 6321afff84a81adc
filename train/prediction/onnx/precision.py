"""The classifier with the numbers of an ONNX file: computed in 32 bits, stored in 32 or 16."""

import dataclasses
from typing import Any

import jax
import numpy as np

from train.classifiers.trained import TrainedClassifier
from train.foundation.errors import UserError
from train.run.parts import assemble


def adapted(
    classifier: TrainedClassifier, *, half: bool, has_calibration: bool
) -> TrainedClassifier:
    """The classifier as the file has it, for which rules are fitted with these numbers.

    ONNX Runtime does not convolve numbers of bfloat16, so a network in half precision computes in
    32 bits. With `half`, matrices and kernels are rounded to 16 bits, and computed in 32.

    Args:
        classifier: the classifier.
        half: whether weights are stored in 16 bits.
        has_calibration: whether limits are given, which are for the run's own numbers.

    Raises:
        UserError: they are given, and are for other numbers; or a weight is too large.
    """
    if not half and not classifier.config.model.half_precision:
        return classifier
    if classifier.run is not classifier:
        raise UserError(
            "--float16 is not for a run on features together with its network: limits would need "
            "features of the rounded network; leave it out, or give --takes=features"
        )
    if has_calibration:
        why = "--float16 rounds" if half else "a network in half precision computes"
        raise UserError(
            "--calibration has limits for the run's own numbers, and the limits of this file are "
            f"fitted with its own: {why} in another way; leave it out"
        )
    config = classifier.config
    if config.model.half_precision:
        model = dataclasses.replace(config.model, half_precision=False)
        config = dataclasses.replace(config, model=model)
    parts = assemble(config, classifier.parts.data.facts, workdir=classifier.workdir)
    params = jax.tree.map(_rounded, classifier.params) if half else classifier.params
    # Without the workdir, no rule that is kept there is used, and none is kept.
    return dataclasses.replace(classifier, workdir=None, parts=parts, params=params)


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
