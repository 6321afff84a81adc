"""A packaged classifier: a file of train.export with its description, as a classifier."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.export
import msgspec
import numpy as np

from topk_jax import metrics
from train.classifiers import onnx_runtime
from train.classifiers.classifier import Function, compute
from train.data import preparation
from train.data.classes import Classes
from train.data.crops import ImageReader
from train.data.examples import Examples
from train.data.taxonomy import ClassTree
from train.foundation import files
from train.foundation.errors import UserError, errors_told, within
from train.reports.rules import SetRule, from_json
from train.scores import collecting
from train.scores.scores import Scores

# A batch to the outputs of a program, by their names.
Call = Callable[[Any], dict[str, Any]]
PROBABILITIES, CHOSEN, NODES = "probabilities", "chosen", "nodes"
NONE_OF_THESE, OUTLIER_SCORES = "none_of_these", "outlier_scores"
_MOST_BYTES = 2**34


@dataclass(frozen=True, kw_only=True, eq=False)
class Package:
    """A packaged classifier; see `Classifier`.

    Attributes:
        path: its file.
        digest: the SHA-256 of the file.
        classes: its classes.
        inputs: "images" or "features".
        shape: the shape of an example.
        reader: makes pixels of image files; None for features.
        own_rule: its rule.
        call: maps a batch to the outputs.
        is_onnx: whether ONNX Runtime calls it, outside of JAX.
    """

    path: Path
    digest: str
    classes: Classes
    inputs: str
    shape: tuple[int, ...]
    reader: ImageReader | None
    own_rule: SetRule
    call: Call
    is_onnx: bool

    @property
    def title(self) -> str:
        """What headings call it: its path."""
        return str(self.path)

    @property
    def what(self) -> str:
        """An example in words."""
        return "image" if self.inputs == "images" else "row"

    def scores(self) -> Function:
        """Images or features to probabilities [n, L]; pure."""
        return functools.partial(self._output, PROBABILITIES, (len(self.classes),))

    def outliers(self, name: str) -> Function:
        """The same inputs to outlier scores [n]; pure."""
        if name != (own := self.own_rule.rule.new_score):
            must_be = f"{own}, the score of {self.path}"
            raise UserError(field="new_score", must_be=must_be, got=name)
        return functools.partial(self._output, OUTLIER_SCORES, ())

    def score(
        self, examples: Examples, *, new_score: str | None = None, name: str = "new"
    ) -> Scores:
        """The probabilities of examples, with outlier scores if its sets need them."""
        if new_score is not None:
            self.outliers(new_score)
        unusual: list[np.ndarray] = []

        def rows() -> Iterator[dict[str, np.ndarray]]:
            for batch, found in compute(self.call, examples, f"{name} {self.what}s"):
                values, labels = found[PROBABILITIES], batch["labels"]
                if OUTLIER_SCORES in found:
                    unusual.append(found[OUTLIER_SCORES])
                known = collecting.labels_for_steps(labels, len(self.classes))
                with np.errstate(divide="ignore"):
                    loss = -np.log(values[np.arange(len(labels)), known])
                ranks = np.asarray(metrics.label_ranks(values, known))
                yield {**batch, "scores": values, "loss": loss, "ranks": ranks}

        scores = collecting.collected(rows(), examples, self.classes)
        return dataclasses.replace(scores, outliers=np.concatenate(unusual) if unusual else None)

    def _output(self, name: str, shape: tuple[int, ...], inputs: jax.Array) -> Any:
        if not self.is_onnx:
            return self.call(inputs)[name]
        like = jax.ShapeDtypeStruct((len(inputs), *shape), np.float32)
        return jax.pure_callback(lambda batch: self.call(np.asarray(batch))[name], like, inputs)


class _Array(msgspec.Struct):
    shape: list[Any]
    steps: list[dict[str, Any]] = []


class _Description(msgspec.Struct):
    """The entries of a description that are read."""

    digest: str
    classes: tuple[str, ...]
    rule: dict[str, Any]
    outputs: dict[str, _Array]
    images: _Array | None = None
    features: _Array | None = None
    training_images: tuple[int, ...] | None = None
    taxonomy: Any = None
    onnx: dict[str, Any] | None = None


def read(path: Path, flag: str = "--program") -> Package:
    """The packaged classifier in a file, with the description beside it.

    Args:
        path: the file.
        flag: the flag that names it, for messages.

    Raises:
        UserError: one of the two is missing, damaged, or not of the other.
    """
    described = path.with_name(f"{path.name}.json")
    with errors_told(f"{flag} must be a program of train.export"), within(f"{flag}: "):
        content = files.read_bounded(path, _MOST_BYTES)
        plain = files.read_checked(described, "a description that train.export wrote")
    if "onnx" in plain:
        onnx_runtime.check_installed(f"{flag} {path}")
    with errors_told(f"{flag}: {described} is not the description of {path.name}"):
        return _parse(path, content, msgspec.convert(plain, _Description))


def _parse(path: Path, content: bytes, plain: _Description) -> Package:
    if plain.digest != hashlib.sha256(content).hexdigest():
        raise ValueError("one of the two was changed, or copied without the other")
    if (given := plain.images or plain.features) is None:
        raise ValueError("it has neither images nor features")
    shape, names = tuple(given.shape[1:]), plain.classes
    tree = None if plain.taxonomy is None else ClassTree.from_plain(plain.taxonomy)
    classes = Classes(names, plain.training_images or (0,) * len(names), tree)
    # Each call without jit would trace the program again.
    run = (
        jax.jit(jax.export.deserialize(bytearray(content)).call)
        if plain.onnx is None
        else onnx_runtime.load(content)
    )
    return Package(
        path=path,
        digest=plain.digest,
        classes=classes,
        inputs="images" if plain.images else "features",
        shape=shape,
        reader=preparation.from_plain(given.steps, shape) if plain.images else None,
        own_rule=from_json(plain.rule, classes),
        call=lambda batch: dict(zip(plain.outputs, run(batch), strict=True)),
        is_onnx=plain.onnx is not None,
    )
