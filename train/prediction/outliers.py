"""Outlier scores of a classifier: how unusual an example is beside the training examples."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import sets
from train.data import streaming
from train.data.batches import Batches
from train.data.examples import Examples
from train.evaluation import outlier_scores
from train.evaluation.predictions import Predictions
from train.foundation.errors import UserError
from train.prediction import known_examples
from train.prediction.known_examples import KnownExamples
from train.prediction.trained import TrainedClassifier
from train.workdir import terminal

# For classes of few examples, whose covariance would not have an inverse.
_SHRINKAGE = 0.01
# Every example of a class with this number is held out of its mean, for "either".
_HELD = 5
# The unit of a score is the distance of this quantile from the median. The limit of sets of a
# coverage of 0.9 is about there, and with both scores equally many known examples are called new.
_UPPER = 0.975


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

    def after(self, function: Callable[[jax.Array], jax.Array]) -> "OutlierScore":
        """The score of the results of a pure function."""
        return OutlierScore(self.name, lambda inputs: self.of_inputs(function(inputs)))


def of_classifier(classifier: TrainedClassifier, name: str) -> OutlierScore:
    """The outlier score of that name, for what the classifier takes.

    It is "energy" for "either" of a list of classes.

    Raises:
        UserError: it needs the training examples, which are not here.
    """
    if classifier.of_run is not classifier:
        return of_classifier(classifier.of_run, name).after(classifier.examples)
    if name in outlier_scores.OF_BOTH:
        if classifier.class_counts.any():
            return OutlierScore(name, _either(classifier))
        name = "energy"
    measure: Callable[[jax.Array], jax.Array]
    if name in outlier_scores.OF_LOGITS:
        outputs, measure = classifier.logits(), partial(sets.outlier_scores, kind=name)
    else:
        outputs, measure = classifier.features(), _of_features(classifier, name)
    return OutlierScore(name, lambda inputs: measure(outputs(inputs)).astype(jnp.float32))


def measure(
    predictions: Predictions, score: OutlierScore, examples: Examples, what: str
) -> Predictions:
    """The predictions with the outlier scores of their examples.

    Args:
        predictions: predictions for examples of the split.
        score: the score.
        examples: the split.
        what: what the bar calls them.

    Raises:
        UserError: a score is not a number.
    """
    found = _of_split(score, examples, what)
    scores = found if predictions.indices is None else found[predictions.indices]
    if np.isnan(scores).any():
        raise UserError(
            f"--new_score={score.name} is NaN for {int(np.isnan(scores).sum()):,} of the "
            f"{len(scores):,} {what} examples"
        )
    return dataclasses.replace(predictions, outliers=scores)


def _either(classifier: TrainedClassifier) -> Callable[[jax.Array], jax.Array]:
    """Inputs to the larger of two scores [n]: a usual example is usual by both.

    Hazard: examples are nearer to means that they are part of than new ones are, so that their
    unit would be too small. Choice: the unit of examples that the means do not have.
    """
    known = known_examples.of(classifier)
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


def _of_split(score: OutlierScore, examples: Examples, what: str) -> np.ndarray:
    """The scores of examples, [n]; see `measure`."""
    measured = jax.jit(score.of_inputs)
    batches = Batches(examples=examples, size=known_examples.BATCH_SIZE)
    in_words = f"{score.name} of {what} examples"
    tracked = terminal.tracked(streaming.stream(batches), len(batches), in_words)
    rows = [np.asarray(measured(batch["images"]))[batch["mask"]] for batch in tracked]
    return np.concatenate([np.zeros(0, np.float32), *rows])


def _of_features(classifier: TrainedClassifier, name: str) -> Callable[[jax.Array], jax.Array]:
    """Features [n, d] to scores [n]."""
    known = known_examples.of(classifier)
    if name != "neighbors":
        return _to_means(known, classifier)
    nearest = min(outlier_scores.NEIGHBORS, len(known.features))
    directions = np.asarray(known_examples.directions(known.features))
    return lambda features: sets.neighbor_scores(
        known_examples.directions(features), directions, k=nearest
    )


def _to_means(
    known: KnownExamples, classifier: TrainedClassifier
) -> Callable[[jax.Array], jax.Array]:
    """Features [n, d] to their distances [n] to the nearest mean of a class."""
    means, whitening = map(
        np.asarray,
        sets.class_gaussian(
            known.features,
            known.labels,
            num_classes=classifier.num_classes,
            shrinkage=_SHRINKAGE,
        ),
    )
    return lambda features: sets.mahalanobis_scores(features, means, whitening)
