"""Examples to probabilities and sets, one function for `jax.jit` and `jax.export`."""

from collections.abc import Callable, Iterable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from train.prediction import batching
from train.prediction.batching import Examples
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.trained import TrainedClassifier

# uint8 images [n, height, width, channels], or features [n, d], to probabilities [n, L], float32,
# sets [n, L], if sets have names, nodes [n, V], and, if sets may say it, who has "none of these",
# [n].
Inference = Callable[[jax.Array], tuple[jax.Array, ...]]
# Probabilities [n, L] to sets [n, L] and, if sets have names, nodes [n, V].
Answer = Callable[[jax.Array], tuple[jax.Array, ...]]


def make(
    classifier: TrainedClassifier, rule: CalibratedRule, answers: Answer | None = None
) -> Inference:
    """The inference of a classifier and a rule, a pure function.

    Args:
        classifier: the classifier.
        rule: the rule that makes the sets.
        answers: another form of `CalibratedRule.answer`; None for that itself.
    """
    scores, answers = classifier.scores(), answers or rule.answer

    def infer(inputs: jax.Array) -> tuple[jax.Array, ...]:
        probabilities = scores(inputs).astype(jnp.float32)
        answer = answers(probabilities)
        return probabilities, *(answer if rule.new is None else rule.new.add(answer, inputs))

    return infer


def infer_batches(
    classifier: TrainedClassifier,
    rule: CalibratedRule,
    batches: Iterable[tuple[Examples, np.ndarray]],
) -> Iterator[tuple[Examples, np.ndarray, tuple[np.ndarray, ...]]]:
    """The examples of each batch with their probabilities [n, L], and what the rule answers.

    Args:
        classifier: the classifier.
        rule: the rule that makes the sets.
        batches: each as its examples and their input; all inputs have one shape.
    """
    for examples, outputs in batching.one_ahead(jax.jit(make(classifier, rule)), batches):
        probabilities, *answer = (np.asarray(output) for output in outputs)
        yield examples, probabilities, tuple(answer)


def infer_scores(
    classifier: TrainedClassifier, batches: Iterable[tuple[Examples, np.ndarray]]
) -> Iterator[tuple[Examples, np.ndarray]]:
    """The examples of each batch with their probabilities [n, L]; see `infer_batches`."""
    scores = classifier.scores()
    infer = jax.jit(lambda inputs: scores(inputs).astype(jnp.float32))
    for examples, outputs in batching.one_ahead(infer, batches):
        yield examples, np.asarray(outputs)
