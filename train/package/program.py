"""Serializes a classifier and its rule as one program, and describes the program."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp

from train.classifiers import packaged
from train.classifiers.trained import TrainedClassifier
from train.data import preparation, steps
from train.data.dataset import INPUT_DTYPES
from train.foundation.errors import UserError
from train.package import script
from train.reports.rules import SetRule

_PLATFORMS = ("cpu", "cuda", "tpu")
# A file of FlatBuffers cannot be larger.
_MOST_BYTES = 2**31 - 2**16


def make(
    classifier: TrainedClassifier, rule: SetRule
) -> Callable[[jax.Array], tuple[jax.Array, ...]]:
    """The program, a pure function for any number of examples: inputs to `outputs`.

    Args:
        classifier: the classifier.
        rule: the fitted rule that makes the sets.
    """
    scores, new_score = classifier.scores(), rule.rule.new_score
    outliers = None if new_score is None else classifier.outliers(new_score)

    def infer(inputs: jax.Array) -> tuple[jax.Array, ...]:
        probabilities = scores(inputs).astype(jnp.float32)
        unusual = None if outliers is None else outliers(inputs)
        answer = rule.answer(probabilities, unusual)
        return tuple(one for one in (probabilities, *answer, unusual) if one is not None)

    return infer


def serialize(classifier: TrainedClassifier, rule: SetRule) -> bytes:
    """The serialized program, for one image or row or more, and all platforms.

    Raises:
        UserError: it would be too large.
    """
    # A dimension is at least 1: JAX refuses to call the program with an empty batch.
    (number,) = jax.export.symbolic_shape("n")
    batch = jax.ShapeDtypeStruct((number, *classifier.shape), INPUT_DTYPES[classifier.inputs])
    exported = jax.export.export(jax.jit(make(classifier, rule)), platforms=_PLATFORMS)(batch)
    if len(exported.mlir_module_serialized) > _MOST_BYTES:
        raise UserError("--format=program is for classifiers of less than 2 GB; this one is larger")
    return bytes(exported.serialize())


def script_of(classifier: TrainedClassifier) -> bytes | None:
    """The script that runs a program of images, with a copy of `train.data.steps`; else None."""
    if classifier.inputs != "images":
        return None
    own, copied = (Path(str(one.__file__)).read_text("utf-8") for one in (script, steps))
    return own.replace("from train.data.steps import prepare\n", copied).encode()


def describe(classifier: TrainedClassifier, rule: SetRule) -> dict[str, Any]:
    """What a user of the program needs to know; `train.classifiers.packaged` reads it."""
    classes = classifier.classes
    return {
        **inputs_of(classifier, "The program itself normalizes."),
        "outputs": outputs(rule, len(classes)),
        "rule": rule.to_json(),
        **({} if classes.counts is None else {"training_images": list(classes.training_images)}),
        **({} if classes.tree is None else {"taxonomy": classes.tree.to_plain()}),
        **facts_of(classifier),
        "platforms": list(_PLATFORMS),
        "jax": jax.__version__,
    }


def outputs(rule: SetRule, num_classes: int) -> dict[str, Any]:
    """The arrays that the program returns, by their names, in their order."""
    found = {packaged.PROBABILITIES: _array("float32", num_classes)}
    found[packaged.CHOSEN] = _array("bool", num_classes)
    if rule.tree is not None:
        found[packaged.NODES] = _array("bool", rule.tree.taxonomy.num_nodes)
    if rule.says_new:
        found[packaged.NONE_OF_THESE] = _array("bool")
        found[packaged.OUTLIER_SCORES] = _array("float32")
    return found


def _array(dtype: str, *shape: int) -> dict[str, Any]:
    return {"shape": ["n", *shape], "dtype": dtype}


def facts_of(classifier: TrainedClassifier) -> dict[str, Any]:
    """The classes in their order, and what the classifier was trained on and how."""
    spec = classifier.spec
    origin, name = classifier.origin
    return {
        "classes": list(classifier.classes.names),
        "data_set": spec.name,
        **({"attribution": spec.attribution} if spec.attribution else {}),
        origin: name,
        "network": classifier.network_name,
    }


def inputs_of(classifier: TrainedClassifier, then: str) -> dict[str, Any]:
    """The array that an exported classifier takes, by its name.

    Args:
        classifier: the classifier.
        then: how an image becomes what the network takes after its steps, in words.
    """
    array = _array(INPUT_DTYPES[classifier.inputs].name, *classifier.shape)
    if classifier.inputs == "features":
        told = "The features as in training. The program itself standardizes them."
        return {"features": {**array, "preparation": told}}
    spec = classifier.spec
    numbers = {"divisor": 255, "mean": list(spec.mean), "std": list(spec.std)}
    reader = spec.image_reader
    more = {"steps": preparation.to_plain(reader), "normalization": numbers}
    return {"images": {**array, "preparation": f"{preparation.in_words(reader)} {then}", **more}}
