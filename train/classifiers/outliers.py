"""How unusual an example is beside the training examples: scores for classes that are not known."""

import contextlib
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
from train.foundation import files, kinds
from train.foundation.errors import UserError, errors_told
from train.run import run_folder

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
    """What is needed of a `TrainedClassifier`, which imports this module."""

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

    def are_held(self) -> np.ndarray:
        """Whether an example is held out: every fifth of its class, [m]."""
        order = np.argsort(self.labels, kind="stable")
        ascending = self.labels[order]
        places = np.arange(len(order)) - np.searchsorted(ascending, ascending)
        found = np.zeros(len(order), np.bool_)
        found[order] = places % _HELD == _HELD - 1
        return found


def of_classifier(classifier: _Trained, name: str) -> Function:
    """The outlier score of that name: examples of the run's data set to scores [n]; pure.

    It is "energy" for "either" of a list of classes.

    Raises:
        UserError: there is no such score, or it needs the training examples, which are not here.
    """
    if wrong := kinds.wrong(name, kinds.one_of(SCORES)):
        raise UserError(field="new_score", must_be=wrong, got=name)
    if name == DEFAULT:
        if classifier.classes.counts is not None:
            return _either(classifier)
        name = "energy"
    measured: Function
    if name in OF_LOGITS:
        outputs, measured = classifier.logits(), partial(sets.outlier_scores, kind=name)
    else:
        known, num_classes = known_examples(classifier), len(classifier.classes)
        is_to_means, outputs = name == "mahalanobis", classifier.features()
        measured = _to_means(known, num_classes) if is_to_means else _to_neighbors(known)
    return lambda inputs: measured(outputs(inputs)).astype(jnp.float32)


def known_examples(classifier: _Trained) -> KnownExamples:
    """Training examples of a classifier, which a run keeps.

    Raises:
        UserError: they are not kept, and the data set is not on this machine, or there is none; or
            the file is damaged.
    """
    path = None if classifier.workdir is None else classifier.workdir / run_folder.KNOWN_FEATURES
    if path is not None and path.exists():
        with errors_told(f"{path} is damaged", "; delete it"):
            with np.load(path) as arrays:
                kept = {name: arrays[name] for name in ("features", "labels", "energies")}
            if len({len(array) for array in kept.values()}) > 1:
                raise ValueError("its arrays have other shapes")
        return KnownExamples(**kept)
    if classifier.classes.counts is None:
        raise UserError(
            "new_score by features needs training examples, and a list of classes has none: give "
            f"one of {', '.join(OF_LOGITS)}"
        )
    known = _computed(classifier)
    if path is not None:
        # Without permission to write, they are computed again the next time.
        with contextlib.suppress(OSError), files.replacing(path) as written:
            np.savez(written, **vars(known))
    return known


def _computed(classifier: _Trained) -> KnownExamples:
    """At most `_MOST` training examples, from the data set."""
    train = classifier.load_dataset().train
    order = np.random.default_rng(_SEED).permutation(len(train))[:_MOST]
    features, logits = classifier.features(), classifier.logits()

    @jax.jit
    def outputs(inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        return features(inputs).astype(jnp.float32), _energies(logits(inputs))

    rows = [
        (*found, batch["labels"])
        for batch, found in compute(
            outputs, train.take(np.sort(order)), "features of training examples"
        )
    ]
    of_features, energies, labels = map(np.concatenate, zip(*rows, strict=True))
    return KnownExamples(of_features, labels, energies)


def _either(classifier: _Trained) -> Function:
    """Inputs to the larger of two scores [n]: a usual example is usual by both.

    Hazard: examples are nearer to means that they are part of than new ones are, so that their
    unit would be too small. Choice: the unit of examples that the means do not have.
    """
    known = known_examples(classifier)
    is_held = known.are_held()
    rest, held = (known.take(~is_held), known.take(is_held)) if is_held.any() else (known, known)
    distances = _to_means(rest, len(classifier.classes))
    in_units = _in_units_of(distances(jnp.asarray(held.features))), _in_units_of(held.energies)
    logits, features = classifier.logits(), classifier.features()

    def larger(inputs: jax.Array) -> jax.Array:
        found = distances(features(inputs)).astype(jnp.float32), _energies(logits(inputs))
        return jnp.maximum(*(of(one) for of, one in zip(in_units, found, strict=True)))

    return larger


def _in_units_of(known: ArrayLike) -> Function:
    """Scores minus the median of scores [m], in units of an upper quantile's distance from it."""
    middle, upper = np.quantile(np.asarray(known), (0.5, _UPPER))
    # Any unit will do if all scores are equal.
    unit = float(upper - middle) or 1.0
    return lambda scores: (scores - float(middle)) / unit


def _energies(logits: jax.Array) -> jax.Array:
    return sets.outlier_scores(logits, kind="energy").astype(jnp.float32)


def _to_neighbors(known: KnownExamples) -> Function:
    """Features [n, d] to their distances [n] to a near training example."""
    nearest = min(NEIGHBORS, len(known.features))
    others = np.asarray(directions(known.features))
    return lambda features: sets.neighbor_scores(directions(features), others, k=nearest)


def directions(features: jax.Array | np.ndarray) -> jax.Array:
    """Features [n, d] of length 1, float32; features of 0 stay so."""
    rows = jnp.asarray(features, jnp.float32)
    squares = (rows**2).sum(axis=-1, keepdims=True)
    return rows / jnp.sqrt(jnp.where(squares > 0, squares, 1))


def _to_means(known: KnownExamples, num_classes: int) -> Function:
    """Features [n, d] to their distances [n] to the nearest mean of a class."""
    gaussian = partial(sets.class_gaussian, num_classes=num_classes, shrinkage=_SHRINKAGE)
    means, whitening = map(np.asarray, gaussian(known.features, known.labels))
    return lambda features: sets.mahalanobis_scores(features, means, whitening)
