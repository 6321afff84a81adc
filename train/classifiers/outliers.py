"""How unusual an example is beside the training examples: scores for classes that are not known."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import sets
from train.classifiers.classifier import Function, compute
from train.data import Dataset
from train.data.classes import Classes
from train.data.examples import Examples
from train.foundation import files
from train.foundation.errors import UserError, first_line
from train.workdir import run_files

DEFAULT = "either"
# The number of neighbours. The distance to only the nearest one would depend on single examples.
NEIGHBORS = 5
# Each score in words. All are smaller for usual examples.
OF_LOGITS = {
    "energy": "minus the logarithm of the sum of the exponentials of the logits",
    "logit": "minus the largest logit",
    "probability": "1 minus the largest probability of the softmax",
}
SCORES = {
    DEFAULT: "the larger of energy and mahalanobis, each in units of its own spread over training "
    "examples; energy without training examples",
    **OF_LOGITS,
    "neighbors": f"the distance to the training example that is number {NEIGHBORS} by nearness, "
    "of features of length 1",
    "mahalanobis": "the distance to the nearest mean of a class, in the covariance of the features "
    "within classes",
}

# For classes of few examples, whose covariance would not have an inverse.
_SHRINKAGE = 0.01
# Every example of a class with this number is held out of its mean, for "either".
_HELD = 5
# The unit of a score is the distance of this quantile from the median. The limit of sets of a
# coverage of 0.9 is about there, and with both scores equally many known examples are called new.
_UPPER = 0.975
# If there are more training examples, this many are drawn. An exported program has their features.
_MOST = 10_000
_SEED = 0


class _Trained(Protocol):
    """What is needed of a `TrainedClassifier`."""

    @property
    def workdir(self) -> Path | None:
        """The folder of the run."""

    @property
    def classes(self) -> Classes:
        """Its classes."""

    def load_dataset(self) -> Dataset:
        """The data set of the run."""

    def logits(self) -> Function:
        """Inputs to logits [n, L]."""

    def features(self) -> Function:
        """Inputs to the features below the head, [n, d]."""


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


def of_classifier(classifier: _Trained, name: str) -> Function:
    """The outlier score of that name: examples of the run's data set to scores [n]; pure.

    It is "energy" for "either" of a list of classes.

    Raises:
        UserError: there is no such score, or it needs the training examples, which are not here.
    """
    if name not in SCORES:
        raise UserError(field="new_score", must_be=f"one of {', '.join(SCORES)}", got=name)
    if name == DEFAULT:
        if classifier.classes.counts is not None:
            return _either(classifier)
        name = "energy"
    measured: Function
    if name in OF_LOGITS:
        outputs, measured = classifier.logits(), partial(sets.outlier_scores, kind=name)
    elif name == "mahalanobis":
        outputs, measured = classifier.features(), _to_means(known_examples(classifier), classifier)
    else:
        outputs, measured = classifier.features(), _to_neighbors(known_examples(classifier))
    return lambda inputs: measured(outputs(inputs)).astype(jnp.float32)


def measure(score: Function, examples: Examples, what: str) -> np.ndarray:
    """The outlier scores of examples, [n].

    Args:
        score: the function of the inputs.
        examples: the examples.
        what: what the bar calls them.

    Raises:
        UserError: a score is not a number.
    """
    rows = [found for _, found in compute(jax.jit(score), examples, what)]
    scores = np.concatenate([np.zeros(0, np.float32), *rows])
    if number := int(np.isnan(scores).sum()):
        raise UserError(f"new_score: {what} is NaN for {number:,} of {len(scores):,}")
    return scores


def known_examples(classifier: _Trained) -> KnownExamples:
    """Training examples of a classifier, read from the workdir if they are there.

    Raises:
        UserError: they are not stored, and the data set is not on this machine, or there is no data
            set.
    """
    path = None if classifier.workdir is None else classifier.workdir / run_files.KNOWN_FEATURES
    if path is not None and path.exists():
        return _read(path)
    if classifier.classes.counts is None:
        raise UserError(
            "new_score by features needs training examples, and a list of classes has none: give "
            f"one of {', '.join(OF_LOGITS)}"
        )
    known = _known(classifier)
    if path is not None:
        _write(path, known)
    return known


def directions(features: jax.Array | np.ndarray) -> jax.Array:
    """Features [n, d] of length 1, float32; features of 0 stay so."""
    rows = jnp.asarray(features, jnp.float32)
    squares = (rows**2).sum(axis=-1, keepdims=True)
    return rows / jnp.sqrt(jnp.where(squares > 0, squares, 1))


def _either(classifier: _Trained) -> Function:
    """Inputs to the larger of two scores [n]: a usual example is usual by both.

    Hazard: examples are nearer to means that they are part of than new ones are, so that their
    unit would be too small. Choice: the unit of examples that the means do not have.
    """
    known = known_examples(classifier)
    is_held = known.is_number_of_class(_HELD)
    rest, held = (known.take(~is_held), known.take(is_held)) if is_held.any() else (known, known)
    distances = _to_means(rest, classifier)
    of_distance, of_energy = _unit(distances(jnp.asarray(held.features))), _unit(held.energies)
    logits, features = classifier.logits(), classifier.features()

    def larger(inputs: jax.Array) -> jax.Array:
        energies = sets.outlier_scores(logits(inputs), kind="energy").astype(jnp.float32)
        found = distances(features(inputs)).astype(jnp.float32)
        return jnp.maximum(_in_units(energies, *of_energy), _in_units(found, *of_distance))

    return larger


def _unit(scores: ArrayLike) -> tuple[float, float]:
    """The median of scores [m], and the distance of an upper quantile from it."""
    middle, upper = np.quantile(np.asarray(scores), (0.5, _UPPER))
    # Any unit will do if all scores are equal.
    return float(middle), float(upper - middle) or 1.0


def _in_units(scores: jax.Array, middle: float, unit: float) -> jax.Array:
    return (scores - middle) / unit


def _to_neighbors(known: KnownExamples) -> Function:
    """Features [n, d] to their distances [n] to a near training example."""
    nearest = min(NEIGHBORS, len(known.features))
    others = np.asarray(directions(known.features))
    return lambda features: sets.neighbor_scores(directions(features), others, k=nearest)


def _to_means(known: KnownExamples, classifier: _Trained) -> Function:
    """Features [n, d] to their distances [n] to the nearest mean of a class."""
    found = sets.class_gaussian(
        known.features,
        known.labels,
        num_classes=len(classifier.classes),
        shrinkage=_SHRINKAGE,
    )
    means, whitening = map(np.asarray, found)
    return lambda features: sets.mahalanobis_scores(features, means, whitening)


def _known(classifier: _Trained) -> KnownExamples:
    train = classifier.load_dataset().train
    order = np.random.default_rng(_SEED).permutation(len(train))[:_MOST]
    features, logits = classifier.features(), classifier.logits()

    def outputs(inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        energies = sets.outlier_scores(logits(inputs), kind="energy")
        return features(inputs).astype(jnp.float32), energies.astype(jnp.float32)

    def rows() -> Iterator[tuple[np.ndarray, ...]]:
        chosen = train.take(np.sort(order))
        for batch, found in compute(jax.jit(outputs), chosen, "features of training examples"):
            yield (*map(np.asarray, found), batch["labels"])

    of_features, energies, labels = map(np.concatenate, zip(*rows(), strict=True))
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
        raise UserError(f"{path} is damaged ({first_line(error)}): delete it") from error
    return KnownExamples(features, labels.astype(np.int32), energies)
