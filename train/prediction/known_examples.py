"""Training examples of a classifier, which outlier scores compare an example with."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import sets
from train.data import streaming
from train.data.batches import Batch, Batches
from train.data.examples import Examples
from train.evaluation import outlier_scores
from train.foundation import files
from train.foundation.errors import UserError, first_line
from train.prediction.trained import TrainedClassifier
from train.workdir import run_files, terminal

BATCH_SIZE = 64
# If there are more training examples, this many are drawn. An exported program has their features.
_MOST = 10_000
_SEED = 0


@dataclass(frozen=True, eq=False)
class KnownExamples:
    """Some training examples.

    Attributes:
        features: their features below the head, float32 [m, d].
        labels: their classes, [m].
        energies: their outlier scores "energy", float32 [m].
    """

    features: np.ndarray
    labels: np.ndarray
    energies: np.ndarray

    def take(self, chosen: np.ndarray) -> "KnownExamples":
        """The chosen ones."""
        return KnownExamples(self.features[chosen], self.labels[chosen], self.energies[chosen])

    def is_number_of_class(self, step: int) -> np.ndarray:
        """Whether an example has the number `step`, 2 `step`, … in its class, [m]."""
        order = np.argsort(self.labels, kind="stable")
        ascending = self.labels[order]
        places = np.arange(len(order)) - np.searchsorted(ascending, ascending)
        found = np.zeros(len(order), np.bool_)
        found[order] = places % step == step - 1
        return found


def of(classifier: TrainedClassifier) -> KnownExamples:
    """The examples, read from the workdir if they are there.

    Raises:
        UserError: they are not stored, and the data set is not on this machine, or there is no data
            set.
    """
    path = None if classifier.workdir is None else classifier.workdir / run_files.KNOWN_FEATURES
    if path is not None and path.exists():
        return _read(path)
    if not classifier.class_counts.any():
        raise UserError(
            "--new_score by features needs training examples, and a list of classes has none: "
            f"give one of {', '.join(outlier_scores.OF_LOGITS)}"
        )
    known = _measure(classifier)
    if path is not None:
        _write(path, known)
    return known


def batches(examples: Examples) -> Iterator[Batch]:
    """The training examples in batches, with a progress bar for their features."""
    found = Batches(examples=examples, size=BATCH_SIZE)
    what = "features of training examples"
    return iter(terminal.tracked(streaming.stream(found), len(found), what))


def directions(features: jax.Array | np.ndarray) -> jax.Array:
    """Features [n, d] of length 1, float32; features of 0 stay so."""
    rows = jnp.asarray(features, jnp.float32)
    squares = (rows**2).sum(axis=-1, keepdims=True)
    return rows / jnp.sqrt(jnp.where(squares > 0, squares, 1))


def _measure(classifier: TrainedClassifier) -> KnownExamples:
    train = classifier.load_dataset().train
    order = np.random.default_rng(_SEED).permutation(len(train))[:_MOST]
    features, logits = classifier.features(), classifier.logits()

    def outputs(inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        energies = sets.outlier_scores(logits(inputs), kind="energy")
        return features(inputs).astype(jnp.float32), energies.astype(jnp.float32)

    compiled = jax.jit(outputs)
    rows = []
    for batch in batches(train.take(np.sort(order))):
        found = (*compiled(batch["images"]), batch["labels"])
        rows.append([np.asarray(values)[batch["mask"]] for values in found])
    of_features, energies, labels = map(np.concatenate, zip(*rows, strict=True))
    return KnownExamples(of_features, labels, energies)


def _write(path: Path, known: KnownExamples) -> None:
    try:
        with files.replacing(path) as file:
            np.savez(file, **vars(known))
    except OSError:
        # Without permission to write, they are computed again the next time.
        return


def _read(path: Path) -> KnownExamples:
    try:
        with files.open_regular(path) as file, np.load(file, allow_pickle=False) as arrays:
            features, labels, energies = (
                arrays[name] for name in ("features", "labels", "energies")
            )
        number = features.shape[:1]
        if (
            features.ndim != 2
            or {features.dtype, energies.dtype} != {np.dtype(np.float32)}
            or (labels.shape, energies.shape) != (number, number)
        ):
            raise ValueError("its arrays have other shapes")
    except Exception as error:  # A damaged file can fail in many ways.
        raise UserError(f"{path} cannot be read: {first_line(error)}; delete it") from error
    return KnownExamples(features, labels.astype(np.int32), energies)
