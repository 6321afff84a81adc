"""Serializes a classifier and its rule as one program, and describes the program."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp

from train.classifiers import program
from train.classifiers.trained import TrainedClassifier
from train.data import images, preparation
from train.data.dataset import INPUT_DTYPES
from train.foundation.errors import UserError
from train.prediction import standalone
from train.reports.rules import SetRule

_PLATFORMS = ("cpu", "cuda", "tpu")
# A file of FlatBuffers cannot be larger.
_MOST_BYTES = 2**31 - 2**16
# How `standalone` and what it imports name files of ours.
_OURS = re.compile(r"^from train\.data\.(\w+) import .*\n", re.MULTILINE)


def make(
    classifier: TrainedClassifier, rule: SetRule, *, sorting: bool = False
) -> Callable[[jax.Array], tuple[jax.Array, ...]]:
    """The program, a pure function for any number of examples: inputs to `program.outputs_of`.

    Args:
        classifier: the classifier.
        rule: the fitted rule that makes the sets.
        sorting: whether only operations are used that ONNX has.
    """
    scores, new_score = classifier.scores(), rule.rule.new_score
    outliers = None if new_score is None else classifier.outliers(new_score)

    def infer(inputs: jax.Array) -> tuple[jax.Array, ...]:
        probabilities = scores(inputs).astype(jnp.float32)
        unusual = None if outliers is None else outliers(inputs)
        answer = rule.answer(probabilities, unusual, sorting=sorting)
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


def describe(classifier: TrainedClassifier, rule: SetRule) -> dict[str, Any]:
    """What a user of the program needs to know; `train.classifiers.program` reads it."""
    classes = classifier.classes
    return {
        **inputs_of(classifier, "The program itself normalizes."),
        "outputs": outputs(classifier, rule),
        "rule": rule.to_json(),
        **({} if classes.counts is None else {"training_images": list(classes.training_images)}),
        **({} if classes.tree is None else {"taxonomy": classes.tree.to_plain()}),
        **facts_of(classifier),
        "platforms": list(_PLATFORMS),
        "jax": jax.__version__,
    }


def script(classifier: TrainedClassifier) -> bytes | None:
    """The file that stands beside a program of images and runs it; None for other programs."""
    if classifier.inputs != "images":
        return None
    return _with_ours(Path(standalone.__file__).read_text("utf-8")).encode()


def _with_ours(text: str) -> str:
    """The text of a file of Python with the texts of our files that it imports names from."""
    folder = Path(images.__file__).parent
    return _OURS.sub(lambda found: _with_ours((folder / f"{found[1]}.py").read_text("utf-8")), text)


def outputs(classifier: TrainedClassifier, rule: SetRule) -> dict[str, Any]:
    """The arrays that the program returns, by their names."""
    shapes = program.outputs_of(rule, len(classifier.classes))
    return {
        name: {"shape": ["n", *shape], "dtype": program.dtype_of(name).name}
        for name, shape in shapes.items()
    }


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
        then: how an image becomes what the network takes after `preparation_in_words`.
    """
    of_images, spec = classifier.inputs == "images", classifier.spec
    in_words = "The features as in training. The program itself standardizes them."
    more: dict[str, Any] = {}
    if of_images:
        in_words = f"{preparation_in_words(classifier)} {then}"
        numbers = {"divisor": 255, "mean": list(spec.mean), "std": list(spec.std)}
        more = {"steps": preparation.to_plain(spec.image_reader), "normalization": numbers}
    return {
        classifier.inputs: {
            "shape": ["n", *classifier.shape],
            "dtype": INPUT_DTYPES[classifier.inputs].name,
            "preparation": in_words,
            **more,
        }
    }


def preparation_in_words(classifier: TrainedClassifier) -> str:
    """How an image becomes the uint8 pixels that the classifier takes, in words."""
    height, width, channels = classifier.shape
    colour = "greyscale" if channels == 1 else "RGB"
    reader = classifier.spec.image_reader
    upright = ", turned upright" if reader.upright else ""
    return (
        f"The picture{upright}, in {colour}, {reader.fit.in_words} (bilinear with "
        f"antialiasing, as Pillow does), the middle {height} x {width} pixels of it, values from 0 "
        "to 255."
    )
