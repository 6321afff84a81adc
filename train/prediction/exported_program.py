"""Serializes a classifier and its rule as one program, and describes the program."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.export

from train.data import DatasetSpec, images
from train.data.dataset import INPUT_DTYPES
from train.foundation.errors import UserError
from train.prediction import description, inference, standalone
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.trained import TrainedClassifier

_PLATFORMS = ("cpu", "cuda", "tpu")
# A file of FlatBuffers cannot be larger.
_MOST_BYTES = 2**31 - 2**16
# How `standalone` and what it imports name files of ours.
_OURS = re.compile(r"^from train\.data\.(\w+) import .*\n", re.MULTILINE)


def serialize(classifier: TrainedClassifier, rule: CalibratedRule) -> bytes:
    """The serialized program, for one image or row or more, and all platforms.

    Raises:
        UserError: it would be too large.
    """
    # A dimension is at least 1: JAX refuses to call the program with an empty batch.
    (number,) = jax.export.symbolic_shape("n")
    dtype = INPUT_DTYPES[classifier.spec.inputs]
    batch = jax.ShapeDtypeStruct((number, *classifier.image_shape), dtype)
    infer = jax.jit(inference.make(classifier, rule))
    exported = jax.export.export(infer, platforms=_PLATFORMS)(batch)
    if len(exported.mlir_module_serialized) > _MOST_BYTES:
        raise UserError("--format=program is for classifiers of less than 2 GB; this one is larger")
    return bytes(exported.serialize())


def describe(classifier: TrainedClassifier, rule: CalibratedRule) -> dict[str, Any]:
    """What a user of the program needs to know; a threshold that is not finite is null."""
    return {
        **_inputs(classifier.spec, classifier.image_shape),
        "outputs": outputs(classifier, rule),
        "rule": str(rule),
        "rule_in_words": rule.in_words(),
        "threshold": rule.threshold,
        **({} if rule.counted is None else {"calibrated_on": vars(rule.counted)}),
        **_conformal(rule),
        **_taxonomy(rule),
        **_new(rule),
        **description.facts(classifier),
        "platforms": list(_PLATFORMS),
        "jax": jax.__version__,
    }


def script(classifier: TrainedClassifier) -> bytes | None:
    """The file that stands beside a program of images and runs it; None for other programs."""
    if not classifier.spec.has_images:
        return None
    return _with_ours(Path(standalone.__file__).read_text("utf-8")).encode()


def _with_ours(text: str) -> str:
    """The text of a file of Python with the texts of our files that it imports names from."""
    folder = Path(images.__file__).parent
    return _OURS.sub(lambda found: _with_ours((folder / f"{found[1]}.py").read_text("utf-8")), text)


def outputs(classifier: TrainedClassifier, rule: CalibratedRule) -> dict[str, Any]:
    """The arrays that the program returns, by their names; sets with names have nodes."""
    arrays = {
        "probabilities": {"shape": ["n", classifier.num_classes], "dtype": "float32"},
        "chosen": {"shape": ["n", classifier.num_classes], "dtype": "bool"},
    }
    if rule.tree is not None:
        arrays["nodes"] = {"shape": ["n", rule.tree.taxonomy.num_nodes], "dtype": "bool"}
    if rule.new is not None:
        arrays["none_of_these"] = {"shape": ["n"], "dtype": "bool"}
    return arrays


def _conformal(rule: CalibratedRule) -> dict[str, Any]:
    """The score of a conformal rule and its quantiles; null for a class that is in every set."""
    if rule.conformal is None:
        return {}
    return {"score": rule.conformal.score, "quantiles": rule.conformal.limits}


def _taxonomy(rule: CalibratedRule) -> dict[str, Any]:
    """The nodes in their order: the classes, what is above them, and the root."""
    return {} if rule.tree is None else {"taxonomy": rule.tree.to_plain()}


def _new(rule: CalibratedRule) -> dict[str, Any]:
    """The outlier score that says "none of these" and its limits, if sets may say that."""
    if rule.new is None:
        return {}
    score = {"name": rule.new.score.name, "in_words": rule.new.score.in_words}
    return {"outlier_score": {**score, **vars(rule.new.limits)}}


def _inputs(spec: DatasetSpec, image_shape: tuple[int, ...]) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if spec.has_images:
        in_words = f"{description.preparation(spec, image_shape)} The program itself normalizes."
        more = description.steps(spec)
    else:
        in_words = "The features as in training. The program itself standardizes them."
    return {
        spec.inputs: {
            "shape": ["n", *image_shape],
            "dtype": INPUT_DTYPES[spec.inputs].name,
            "preparation": in_words,
            **more,
        }
    }
