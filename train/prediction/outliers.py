"""Outlier scores of a classifier: how unusual an example is beside the training examples."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import sets
from train.data.batches import Batch
from train.data.pipeline import Pipeline
from train.data.records import Split
from train.evaluation import outlier_scores
from train.foundation import array_files, files
from train.foundation.errors import UserError, first_line
from train.prediction.trained import TrainedClassifier
from train.workdir import run_files, terminal

_BATCH_SIZE = 64
# Of more training examples, some are drawn.
_MOST_KNOWN = 20_000
_SEED = 0
# For classes of few examples, whose covariance would not have an inverse.
_SHRINKAGE = 0.01


@dataclass(frozen=True, eq=False)
class OutlierScore:
    """An outlier score of a classifier.

    Attributes:
        name: one of `outlier_scores.SCORES`.
        measure: maps inputs of the classifier to scores [n], float32; a pure function.
    """

    name: str
    measure: Callable[[jax.Array], jax.Array]

    @property
    def in_words(self) -> str:
        """What it is."""
        return outlier_scores.SCORES[self.name]


def of_classifier(classifier: TrainedClassifier, name: str) -> OutlierScore:
    """The outlier score of that name.

    Raises:
        UserError: it needs the training examples, which are not on this machine.
    """
    measure: Callable[[jax.Array], jax.Array]
    if name in outlier_scores.OF_LOGITS:
        logits = classifier.logits()

        def measure(inputs: jax.Array) -> jax.Array:
            return sets.outlier_scores(logits(inputs), kind=name)
    else:
        features, of_features = classifier.features(), _of_features(classifier, name)

        def measure(inputs: jax.Array) -> jax.Array:
            return of_features(features(inputs))

    return OutlierScore(name, lambda inputs: measure(inputs).astype(jnp.float32))


def of_examples(
    classifier: TrainedClassifier, score: OutlierScore, examples: Split, what: str
) -> np.ndarray:
    """The outlier scores of all examples of a split, float32 [n]; NaN for unreadable images.

    Args:
        classifier: the classifier.
        score: its score.
        examples: the examples.
        what: what the bar calls them.
    """
    found = np.full(len(examples), np.nan, np.float32)
    measure = jax.jit(score.measure)
    for batch in _batches(examples, f"{what}, {score.name}"):
        mask = batch["mask"]
        found[batch["examples"][mask]] = np.asarray(measure(batch["images"]))[mask]
    return found


def _batches(examples: Split, what: str) -> Iterator[Batch]:
    # Those that cannot be read are counted where they are predicted.
    pipeline = Pipeline(_BATCH_SIZE, seed=_SEED, on_skipped=lambda _skipped: None)
    total = -(-len(examples) // _BATCH_SIZE)
    return iter(terminal.tracked(pipeline.evaluation(examples), total, what))


def _of_features(
    classifier: TrainedClassifier, name: str
) -> Callable[[jax.Array], jax.Array]:
    """Features [n, d] to scores [n]."""
    known, labels = _known_features(classifier)
    if name == "neighbors":
        nearest = min(outlier_scores.NEIGHBORS, len(known))
        directions = _directions(known)
        return lambda features: sets.neighbor_scores(_directions(features), directions, k=nearest)
    means, whitening = sets.class_gaussian(
        known, labels, num_classes=classifier.num_classes, shrinkage=_SHRINKAGE
    )
    return lambda features: sets.mahalanobis_scores(features, means, whitening)


def _directions(features: Any) -> jax.Array:
    """Features [n, d] of length 1; features of 0 stay so."""
    rows = jnp.asarray(features)
    squares = (rows**2).sum(axis=-1, keepdims=True)
    return rows / jnp.sqrt(jnp.where(squares > 0, squares, 1))


def _known_features(classifier: TrainedClassifier) -> tuple[np.ndarray, np.ndarray]:
    """The features [m, d] and labels [m] of training examples, read from the workdir if they are.

    Raises:
        UserError: they are not stored, and the data set is not on this machine.
    """
    path = None if classifier.workdir is None else classifier.workdir / run_files.KNOWN_FEATURES
    if path is not None and path.exists():
        return _read(path)
    train = classifier.load_dataset().train
    order = np.random.default_rng(_SEED).permutation(len(train))[:_MOST_KNOWN]
    features = jax.jit(classifier.features())
    rows: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    what = f"features of {len(order):,} training examples"
    for batch in _batches(train.take(np.sort(order)), what):
        rows.append(np.asarray(features(batch["images"]))[batch["mask"]])
        labels.append(batch["labels"][batch["mask"]])
    known, of_known = np.concatenate(rows), np.concatenate(labels)
    if path is not None:
        _write(path, known, of_known)
    return known, of_known


def _write(path: Path, features: np.ndarray, labels: np.ndarray) -> None:
    try:
        with files.replacing(path) as file:
            np.savez(file, features=features, labels=labels)
    except OSError:
        # Without permission to write, they are computed again the next time.
        return


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        arrays = array_files.in_npz(path)
        features, labels = (arrays[name]().read() for name in ("features", "labels"))
        if features.ndim != 2 or features.dtype != np.float32 or labels.shape != features.shape[:1]:
            raise ValueError("its arrays have other shapes")
    except Exception as error:  # A damaged file can fail in many ways.
        raise UserError(f"{path} cannot be read: {first_line(error)}; delete it") from error
    return features, labels.astype(np.int32)
