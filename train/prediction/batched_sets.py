"""Sets and probabilities of examples in memory: rows of features, and names."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from train.prediction import batching, class_sets, inference, set_work
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.class_sets import ClassSet, Scored
from train.prediction.trained import TrainedClassifier
from train.sharing.work import ALONE, Share, counting

_LARGEST_BATCH = 256

Example = TypeVar("Example")
Set = TypeVar("Set", bound=ClassSet)


class BatchedExamples(abc.ABC, Generic[Example, Set]):
    """Examples that come in batches.

    Attributes:
        kind: the class of their sets.
    """

    kind: ClassVar[type[ClassSet]]

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of examples."""

    @abc.abstractmethod
    def batches(
        self, indices: Sequence[np.ndarray], size: int
    ) -> Iterator[tuple[Sequence[Example], np.ndarray]]:
        """The examples of each batch, and their input, filled up to the size."""

    @abc.abstractmethod
    def make_set(self, example: Example, members: dict[str, Any]) -> Set:
        """The set of an example, from the attributes of a `ClassSet`."""

    def make_sets(
        self,
        classifier: TrainedClassifier,
        rule: CalibratedRule,
        *,
        thumbnails: bool,
        share: Share = ALONE,
    ) -> Iterator[Set]:
        """The set of each example, in their order.

        The batch size is 256, or less if there are fewer examples. The last bits of a probability
        may depend on it, and on the place of the example in its batch.

        Args:
            classifier: the classifier.
            rule: the rule that makes the sets.
            thumbnails: not used, because these examples have none.
            share: how this process takes part in the work.
        """
        del thumbnails
        size = batching.batch_size(len(self), _LARGEST_BATCH)

        def compute(units: range) -> Iterator[list[Set]]:
            inputs = self.batches(batching.indices(units, size, len(self)), size)
            for batch, probabilities, answer in inference.infer_batches(classifier, rule, inputs):
                yield [
                    self.make_set(
                        example, class_sets.members(probabilities[index], answer, index, rule)
                    )
                    for index, example in enumerate(batch)
                ]

        number = batching.number_of_batches(len(self), size)
        return set_work.make(share, number, counting(len(self), size), compute, self.kind)

    def score(
        self, classifier: TrainedClassifier, orders: Sequence[np.ndarray], thumbnails: np.ndarray
    ) -> Iterator[Scored]:
        """The probabilities of the examples at some indices, in their order.

        Args:
            classifier: the classifier.
            orders: the indices; each array starts a new batch.
            thumbnails: not used, because these examples have none.
        """
        del thumbnails
        size = batching.batch_size(len(self), _LARGEST_BATCH)
        inputs = self.batches(batching.divided(orders, size), size)
        for batch, probabilities in inference.infer_scores(classifier, inputs):
            yield from map(Scored, probabilities[: len(batch)])
