"""A program of train.export as a classifier: its probabilities, and its own sets."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.export
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
from train.foundation.errors import UserError, first_line
from train.reports.rules import SetRule, from_json
from train.scores import collecting
from train.scores.scores import Scores

# A batch to the outputs of a program, in the order of its description.
Call = Callable[[Any], tuple[Any, ...]]
PROBABILITIES, CHOSEN, NODES = "probabilities", "chosen", "nodes"
NONE_OF_THESE, OUTLIER_SCORES = "none_of_these", "outlier_scores"
_MOST_BYTES = 2**34


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A program and its description; see `Classifier`.

    Attributes:
        path: the file of the program.
        classes: its classes.
        inputs: "images" or "features".
        shape: the shape of an example.
        reader: makes pixels of image files; None for features.
        own_rule: its rule.
        call: maps a batch to the outputs; see `outputs_of`.
        is_onnx: whether ONNX Runtime calls it, outside of JAX.
    """

    path: Path
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
        return functools.partial(self._output, PROBABILITIES)

    def outliers(self, name: str) -> Function:
        """The same inputs to outlier scores [n]; pure."""
        if name != (own := self.own_rule.rule.new_score):
            must_be = f"{own}, the score of the program {self.path}"
            raise UserError(field="new_score", must_be=must_be, got=name)
        return functools.partial(self._output, OUTLIER_SCORES)

    def score(
        self, examples: Examples, *, new_score: str | None = None, name: str = "new"
    ) -> Scores:
        """The probabilities of examples, with outlier scores if its sets need them."""
        if new_score is not None:
            self.outliers(new_score)
        unusual: list[np.ndarray] = []

        def rows() -> Iterator[dict[str, np.ndarray]]:
            for batch, outputs in compute(self.call, examples, f"{name} {self.what}s"):
                found = dict(zip(self.outputs, outputs, strict=True))
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

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """The shape of an example's part of each output, in their order."""
        return outputs_of(self.own_rule, len(self.classes))

    def _output(self, name: str, inputs: jax.Array) -> jax.Array:
        call: Any = self.call
        if self.is_onnx:
            shapes = self.outputs.items()
            like = [
                jax.ShapeDtypeStruct((len(inputs), *shape), dtype_of(one)) for one, shape in shapes
            ]
            call = functools.partial(
                jax.pure_callback, lambda batch: list(self.call(np.asarray(batch))), like
            )
        found: jax.Array = dict(zip(self.outputs, call(inputs), strict=True))[name]
        return found


def outputs_of(rule: SetRule, num_classes: int) -> dict[str, tuple[int, ...]]:
    """The outputs of a program in their order, by their names: the shape of an example's part."""
    arrays: dict[str, tuple[int, ...]] = {PROBABILITIES: (num_classes,), CHOSEN: (num_classes,)}
    if rule.tree is not None:
        arrays[NODES] = (rule.tree.taxonomy.num_nodes,)
    if rule.says_new:
        arrays |= {NONE_OF_THESE: (), OUTLIER_SCORES: ()}
    return arrays


def dtype_of(output: str) -> np.dtype[Any]:
    """The type of an output."""
    return np.dtype(np.float32 if output in (PROBABILITIES, OUTLIER_SCORES) else np.bool_)


@dataclass(frozen=True)
class ProgramFile:
    """What the files of a program had when they were read.

    Attributes:
        path: the file of the program.
        content: its bytes.
        description: the value of the file beside it.
    """

    path: Path
    content: bytes
    description: dict[str, Any]

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of the program."""
        return hashlib.sha256(self.content).hexdigest()

    def load(self) -> Program:
        """The classifier of the program.

        Raises:
            UserError: it is something else.
        """
        is_onnx = "onnx" in self.description
        if is_onnx:
            onnx_runtime.check_installed(str(self.path))
        try:
            # Each call without jit would trace the program again.
            call: Call = (
                onnx_runtime.load(self.content)
                if is_onnx
                else jax.jit(jax.export.deserialize(bytearray(self.content)).call)
            )
            return Program(path=self.path, call=call, is_onnx=is_onnx, **_read(self.description))
        except Exception as error:  # A damaged file can make the readers raise anything.
            raise UserError(
                f"{self.path} is not a program that train.export wrote, or its description is "
                f"damaged: {first_line(error)}"
            ) from error


def read(path: Path, flag: str = "--program") -> ProgramFile:
    """Reads the program in a file, and the description beside it.

    Raises:
        UserError: one of them is missing, or is something else.
    """
    described = path.with_name(f"{path.name}.json")
    try:
        content = files.read_bounded(path, _MOST_BYTES)
        description = files.read_checked(described, "the description of a program")
    except OSError as error:
        raise UserError(
            f"{flag} {path} with its description: {error.filename} cannot be read: {error.strerror}"
        ) from error
    except UserError as error:
        raise UserError(f"{flag}: {error}") from error
    found = ProgramFile(path, content, description)
    if description.get("digest") != found.digest:
        raise UserError(
            f"{flag} {path} is not the file that {described} describes: one of them was damaged, "
            "or exported or copied without the other"
        )
    return found


def _read(description: Mapping[str, Any]) -> dict[str, Any]:
    """What a description has of a `Program`; raises an error of any type for a damaged one."""
    names, plain = tuple(description["classes"]), description.get("taxonomy")
    counts = tuple(description.get("training_images", (0,) * len(names)))
    classes = Classes(names, counts, None if plain is None else ClassTree.from_plain(plain))
    inputs = "images" if "images" in description else "features"
    shape, reader = tuple(description[inputs]["shape"][1:]), None
    if inputs == "images":
        height, width, channels = shape
        reader = preparation.from_plain(description["images"]["steps"], (height, width, channels))
    return {
        "classes": classes,
        "inputs": inputs,
        "shape": shape,
        "reader": reader,
        "own_rule": from_json(description["rule"], classes),
    }
