"""A program of train.export as a classifier: its own sets, and its probabilities."""

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np

from topk_jax import metrics
from train.data import streaming
from train.data.batches import Batch, Batches
from train.data.examples import Examples
from train.data.taxonomy import ClassTree
from train.evaluation import (
    by_rank,
    conformal_rules,
    promises,
    stored_scores,
    summaries,
)
from train.evaluation.conformal_rules import ConformalRule
from train.evaluation.conformal_sets import ConformalSets
from train.evaluation.predictions import Predictions, labels_for_steps, of_steps, with_truths
from train.evaluation.promises import CalibratedOn, Promise
from train.evaluation.summaries import Sets
from train.foundation import fields, files, json_files, shapes
from train.foundation.errors import UserError, first_line
from train.prediction import preparation
from train.prediction.labelled_data import Expected
from train.prediction.onnx import running
from train.workdir import run_shapes, terminal

# A batch to the outputs of a program.
Call = Callable[[np.ndarray], tuple[Any, ...]]
_BATCH_SIZE = 64
_MOST_BYTES = 2**34
_INPUTS = shapes.record(
    {"shape": shapes.list_of(shapes.anything, at_least=2)},
    {"steps": fields.optional(preparation.SHAPE)},
)
_DESCRIPTION = shapes.record(
    {"classes": shapes.list_of(fields.text(), at_least=1), "rule": fields.text()},
    {
        **dict.fromkeys(("images", "features"), _INPUTS),
        "outputs": shapes.record({}),
        "rule_in_words": shapes.string,
        "threshold": shapes.NUMBER_OR_NULL,
        "quantiles": run_shapes.threshold,
        "calibrated_on": shapes.record(
            {"examples": fields.integer(1), "groups": fields.Number(at_least=1)}
        ),
        "digest": shapes.string,
        "onnx": shapes.record({}),
        "taxonomy": shapes.record(
            {
                "ranks": shapes.list_of(shapes.string),
                "names": shapes.list_of(shapes.string),
                "parents": shapes.list_of(fields.integer(0)),
            }
        ),
    },
)
_WHAT = "the description of a program that train.export wrote"
# The rule of sets with a coverage, as `CalibratedRule` prints it.
_COVERAGE = re.compile(
    r"coverage=([0-9.e-]+)(?:, rule=(\w+))?(?:, max_names=\d+)?(?:, new_score=\w+)?"
)


@dataclass(frozen=True)
class ExportedRule:
    """The rule of a program, as its description has it.

    Attributes:
        text: the rule, as "coverage=0.9".
        in_words: sentences that explain which classes are in a set.
        threshold: see `CalibratedRule`.
        calibrated_on: how many examples calibrate it; None if that is not known.
        tree: what is above the classes, if sets have names; None for sets of any classes.
        says_new: whether a set can say "none of these".
    """

    text: str
    in_words: str = ""
    threshold: float | None = None
    calibrated_on: CalibratedOn | None = None
    tree: ClassTree | None = None
    says_new: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False)
class Answers:
    """What a program answers for n examples.

    Attributes:
        predictions: its probabilities, with the cross-entropy as loss.
        sets: its sets.
        says_new: who has "none of these", [n]; None if sets cannot say that.
        of_ranks: what `by_rank.summary` takes, [m, n]; None without a taxonomy.
    """

    predictions: Predictions
    sets: Sets
    says_new: np.ndarray | None
    of_ranks: np.ndarray | None


@dataclass(frozen=True)
class ExportedClassifier:
    """A program and its description.

    Attributes:
        path: the file of the program.
        expected: what it takes.
        rule: its rule.
        call: maps a batch to probabilities [n, L], to sets [n, L], if sets have names, to nodes
            [n, V], and, if sets may say it, to who has "none of these", [n].
    """

    path: Path
    expected: Expected
    rule: ExportedRule
    call: Call

    @property
    def promised(self) -> Promise | None:
        """What its sets promise; None if they do not promise any coverage."""
        found = _coverage(str(self.rule))
        if found is None:
            return None
        coverage, rule = found
        return Promise(promises.promised(coverage, rule), self.rule.calibrated_on)

    def predict(
        self,
        examples: Examples,
        tree: ClassTree | None = None,
    ) -> Answers:
        """The answers for examples.

        Args:
            examples: the examples.
            tree: what is above the classes; None if nothing is.
        """
        batches = Batches(examples=examples, size=_BATCH_SIZE)
        answers = self._rows(streaming.stream(batches), examples, tree)
        scores = stored_scores.CollectedScores(len(examples))
        parts: list[dict[str, np.ndarray]] = []
        for found in terminal.tracked(answers, len(batches), "new examples"):
            scores.add(found["scores"])
            parts.append({name: array for name, array in found.items() if name != "scores"})
        rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        says_new, of_ranks = rows.pop("says_new", None), rows.pop("of_ranks", None)
        indices, hits, sizes = (rows.pop(name) for name in ("indices", "hits", "sizes"))
        truths = None if examples.truths is None else examples.truths[indices]
        sets = summaries.of_hits(hits, sizes, truths)
        names, groups = (
            None if texts is None else texts[indices] for texts in (examples.names, examples.groups)
        )
        predictions = dataclasses.replace(
            of_steps(scores=scores.scores(), **rows), names=names, groups=groups, indices=indices
        )
        if truths is not None:
            predictions = with_truths(predictions, truths)
        return Answers(predictions, sets, says_new, None if of_ranks is None else of_ranks.T)

    def _rows(
        self, batches: Iterable[Batch], examples: Examples, tree: ClassTree | None
    ) -> Iterator[dict[str, np.ndarray]]:
        """The predictions of the program for the examples of each batch."""
        num_classes = len(self.expected.class_names)
        truths = examples.truths
        for batch in batches:
            mask, labels = batch["mask"], batch["labels"]
            known = labels_for_steps(labels, num_classes)
            outputs = self.call(batch["images"])
            ranks = metrics.label_ranks(outputs[0], known)
            found, chosen, *others = map(np.asarray, outputs)
            classes = labels[:, None] if truths is None else truths.classes[batch["examples"]]
            of_batch = np.arange(len(labels)), known
            with np.errstate(divide="ignore"):
                loss = -np.log(found[of_batch])
            of_examples = {
                "scores": found,
                "indices": batch["examples"],
                "labels": labels,
                "ranks": np.asarray(ranks),
                "loss": loss,
                "hits": np.take_along_axis(
                    chosen, np.where(classes < num_classes, classes, 0), axis=1
                )
                & (classes < num_classes),
                "sizes": chosen.sum(axis=1),
                **({"says_new": others[-1]} if self.rule.says_new else {}),
                **({} if tree is None else {"of_ranks": by_rank.values_of(chosen, known, tree).T}),
            }
            yield {name: np.asarray(output)[mask] for name, output in of_examples.items()}


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

    def load(self) -> ExportedClassifier:
        """The classifier of the program.

        Raises:
            UserError: it is something else.
        """
        try:
            call = self._load_onnx() if "onnx" in self.description else self._load_stablehlo()
        except UserError:
            raise
        except Exception as error:  # A damaged file can make the reader raise anything.
            raise UserError(
                f"--program {self.path} is not a program that train.export wrote: "
                f"{first_line(error)}"
            ) from error
        return ExportedClassifier(
            self.path,
            _expected(self.path, self.description),
            _rule(self.path, self.description),
            call,
        )

    def _load_stablehlo(self) -> Call:
        # Each call without jit would trace the program again.
        return jax.jit(jax.export.deserialize(bytearray(self.content)).call)

    def _load_onnx(self) -> Call:
        running.check_installed(f"--program {self.path}", "onnx", "onnxruntime")
        return running.load(self.content)


def read(path: Path) -> ProgramFile:
    """Reads the program in a file, and the description beside it.

    Raises:
        UserError: one of them is missing, or is something else.
    """
    described = path.with_name(f"{path.name}.json")
    try:
        content = files.read_bounded(path, _MOST_BYTES)
    except OSError as error:
        raise UserError(f"--program {path} cannot be read: {error.strerror}") from error
    try:
        description = json_files.read(described, _DESCRIPTION, _WHAT)
    except OSError as error:
        raise UserError(
            f"--program {path} needs its description {described}: {error.strerror}"
        ) from error
    except UserError as error:
        raise error.within("--program: ") from error
    program = ProgramFile(path, content, description)
    if description.get("digest") not in (None, program.digest):
        raise UserError(
            f"--program {path} is not the file that {described} describes: one of them was "
            "damaged, or exported or copied without the other; if you changed it on purpose, "
            "remove the entry digest"
        )
    found, quantiles = _coverage(description["rule"]), description.get("quantiles")
    if found is not None and quantiles is not None:
        coverage, rule = found
        # None becomes NaN.
        limits = np.atleast_1d(np.asarray(quantiles, np.float32))
        limits[np.isnan(limits)] = np.inf
        try:
            ConformalSets(rule, limits, None).checked(coverage)
        except UserError as error:
            raise error.within(f"--program {path}: ") from error
    return program


def _coverage(text: str) -> tuple[float, ConformalRule] | None:
    """The coverage and the conformal rule of the rule in a description; None without them."""
    found = _COVERAGE.fullmatch(text)
    if found is None:
        return None
    rule = conformal_rules.RULES.get(found[2] or conformal_rules.DEFAULT)
    try:
        coverage = float(found[1])
    except ValueError:
        return None
    return None if rule is None or not 0 < coverage < 1 else (coverage, rule)


def load(path: Path) -> ExportedClassifier:
    """The classifier in a file, with the description beside it; see `read`."""
    return read(path).load()


def _rule(path: Path, description: dict[str, Any]) -> ExportedRule:
    tree = None
    if (plain := description.get("taxonomy")) is not None:
        try:
            tree = ClassTree.from_plain(plain)
        except ValueError as error:
            raise UserError(
                f"--program {path} has a description with an invalid taxonomy: {error}"
            ) from error
    counted = description.get("calibrated_on")
    return ExportedRule(
        description["rule"],
        description.get("rule_in_words", ""),
        description.get("threshold"),
        None if counted is None else CalibratedOn(**counted),
        tree,
        "none_of_these" in description.get("outputs", {}),
    )


def _expected(path: Path, description: dict[str, Any]) -> Expected:
    inputs = next((name for name in ("images", "features") if name in description), None)
    if inputs is None:
        raise UserError(f"--program {path} takes neither images nor features")
    of_inputs = description[inputs]
    _, *shape = of_inputs["shape"]
    reader = None
    if inputs == "images":
        steps = of_inputs.get("steps")
        if steps is None:
            raise UserError(
                f"--program {path} has a description without how images are read: "
                "export it again; or evaluate the run, with --workdir"
            )
        try:
            height, width, channels = shape
            reader = preparation.from_plain(steps, (height, width, channels))
        except UserError as error:
            raise error.within(f"--program {path}: ") from error
        except ValueError as error:
            raise UserError(f"--program {path} takes images of the shape {shape}") from error
    return Expected(tuple(description["classes"]), inputs, tuple(shape), reader, name="the program")
