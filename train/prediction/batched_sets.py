"""Sets and probabilities of examples in memory: rows of features, and names."""

from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any, Protocol, TypeVar

import numpy as np

from train.prediction import batching, class_sets, inference, set_work
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.class_sets import ClassSet, Scored
from train.prediction.trained import TrainedClassifier
from train.sharing.work import Share, counting

# The last bits of a probability may depend on the size of a batch, and on the place of the example.
_LARGEST_BATCH = 256

Example = TypeVar("Example")
Example_co = TypeVar("Example_co", covariant=True)
Set = TypeVar("Set", bound=ClassSet)


class Batched(Sized, Protocol[Example_co]):
    """Examples that come in batches."""

    def batches(
        self, indices: Sequence[np.ndarray], size: int
    ) -> Iterator[tuple[Sequence[Example_co], np.ndarray]]:
        """The examples of each batch, and their input, filled up to the size."""


def make_sets(
    examples: Batched[Example],
    classifier: TrainedClassifier,
    rule: CalibratedRule,
    share: Share,
    kind: type[Set],
    make: Callable[[Example, dict[str, Any]], Set],
) -> Iterator[Set]:
    """The set of each example, in their order.

    Args:
        examples: the examples.
        classifier: the classifier.
        rule: the rule that makes the sets.
        share: how this process takes part in the work.
        kind: the class of the sets.
        make: makes one from an example and the attributes of a `ClassSet`.
    """
    size = batching.batch_size(len(examples), _LARGEST_BATCH)

    def compute(units: range) -> Iterator[list[Set]]:
        inputs = examples.batches(batching.indices(units, size, len(examples)), size)
        for batch, probabilities, answer in inference.infer_batches(classifier, rule, inputs):
            yield [
                make(example, class_sets.members(probabilities[index], answer, index, rule))
                for index, example in enumerate(batch)
            ]

    number = batching.number_of_batches(len(examples), size)
    return set_work.make(share, number, counting(len(examples), size), compute, kind)


def score(
    examples: Batched[Any], classifier: TrainedClassifier, orders: Sequence[np.ndarray]
) -> Iterator[Scored]:
    """The probabilities of the examples at some indices, in their order.

    Args:
        examples: the examples.
        classifier: the classifier.
        orders: the indices; each array starts a new batch.
    """
    size = batching.batch_size(len(examples), _LARGEST_BATCH)
    inputs = examples.batches(batching.divided(orders, size), size)
    for batch, probabilities in inference.infer_scores(classifier, inputs):
        yield from map(Scored, probabilities[: len(batch)])
