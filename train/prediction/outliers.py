"""Outlier scores of a classifier: how unusual an example is beside the training examples."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
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
from train.evaluation.predictions import Predictions
from train.foundation import array_files, files
from train.foundation.errors import UserError, first_line
from train.prediction.trained import TrainedClassifier
from train.workdir import run_files, terminal

_BATCH_SIZE = 64
# Of more training examples, some are drawn. An exported program has their features.
_MOST_KNOWN = 10_000
_SEED = 0
# For classes of few examples, whose covariance would not have an inverse.
_SHRINKAGE = 0.01


@dataclass(frozen=True, eq=False)
class OutlierScore:
    """An outlier score of a classifier.

    Attributes:
        name: one of `outlier_scores.SCORES`.
        of_inputs: maps inputs of the classifier to scores [n], float32; a pure function.
    """

    name: str
    of_inputs: Callable[[jax.Array], jax.Array]

    @property
    def in_words(self) -> str:
        """What it is."""
        return outlier_scores.SCORES[self.name]


def of_classifier(classifier: TrainedClassifier, name: str) -> OutlierScore:
    """The outlier score of that name.

    Raises:
        UserError: it needs the training examples, which are not here.
    """
    measure: Callable[[jax.Array], jax.Array]
    if name in outlier_scores.OF_LOGITS:
        outputs, measure = classifier.logits(), partial(sets.outlier_scores, kind=name)
    else:
        outputs, measure = classifier.features(), _of_features(classifier, name)
    return OutlierScore(name, lambda inputs: measure(outputs(inputs)).astype(jnp.float32))


def measure(
    predictions: Predictions, score: OutlierScore, examples: Split, what: str
) -> Predictions:
    """The predictions with the outlier scores of their examples.

    Args:
        predictions: predictions for examples of the split.
        score: the score.
        examples: the split.
        what: what the bar calls them.

    Raises:
        UserError: a score is no number.
    """
    found = np.full(len(examples), np.nan, np.float32)
    measured = jax.jit(score.of_inputs)
    for batch in _batches(examples, f"{score.name} of {what} examples"):
        mask = batch["mask"]
        found[batch["examples"][mask]] = np.asarray(measured(batch["images"]))[mask]
    scores = found if predictions.indices is None else found[predictions.indices]
    if np.isnan(scores).any():
        raise UserError(
            f"--new_score={score.name} is no number for {int(np.isnan(scores).sum()):,} of the "
            f"{len(scores):,} {what} examples"
        )
    return dataclasses.replace(predictions, outliers=scores)


def _batches(examples: Split, what: str) -> Iterator[Batch]:
    # Those that cannot be read are counted where they are predicted.
    pipeline = Pipeline(_BATCH_SIZE, seed=_SEED, on_skipped=lambda _skipped: None)
    total = -(-len(examples) // _BATCH_SIZE)
    return iter(terminal.tracked(pipeline.evaluation(examples), total, what))


def _of_features(classifier: TrainedClassifier, name: str) -> Callable[[jax.Array], jax.Array]:
    """Features [n, d] to scores [n]."""
    known, labels = _known_features(classifier)
    if name == "neighbors":
        nearest = min(outlier_scores.NEIGHBORS, len(known))
        directions = np.asarray(_directions(known))
        return lambda features: sets.neighbor_scores(_directions(features), directions, k=nearest)
    means, whitening = map(
        np.asarray,
        sets.class_gaussian(
            known, labels, num_classes=classifier.num_classes, shrinkage=_SHRINKAGE
        ),
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
        UserError: they are not stored, and the data set is not on this machine, or there is none.
    """
    path = None if classifier.workdir is None else classifier.workdir / run_files.KNOWN_FEATURES
    if path is not None and path.exists():
        return _read(path)
    if not classifier.class_counts.any():
        raise UserError(
            "--new_score by features needs training examples, and a list of classes has none: "
            f"give one of {', '.join(outlier_scores.OF_LOGITS)}"
        )
    train = classifier.load_dataset().train
    order = np.random.default_rng(_SEED).permutation(len(train))[:_MOST_KNOWN]
    features = jax.jit(classifier.features())
    rows: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    for batch in _batches(train.take(np.sort(order)), "features of training examples"):
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
