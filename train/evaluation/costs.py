"""Costs of sets without their label.

A set that has the label costs nothing. Others cost what the label costs with the most similar
class in the set. So larger sets never cost more.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from train.evaluation.predictions import Predictions, chunks
from train.evaluation.set_rules import SetRule


@dataclass(frozen=True, eq=False)
class Costs:
    """The costs of sets.

    Attributes:
        name: the value of --costs.
        of_labels: by label, what a set costs that has neither the label nor a similar class, [L].
        between: by label and by a class of the set, what the set costs at most, [L, L]; None if
            no class is similar to another.
    """

    name: str
    of_labels: np.ndarray
    between: np.ndarray | None = None

    @property
    def largest(self) -> float:
        """The largest cost."""
        return float(self.of_labels.max())

    @cached_property
    def digest(self) -> str:
        """A hash of the costs."""
        arrays = [self.of_labels] if self.between is None else [self.of_labels, self.between]
        content = b"".join(array.astype("<f8").tobytes() for array in arrays)
        return hashlib.sha256(content).hexdigest()[:12]

    def of_sets(self, chosen: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """What sets [n, L] cost, [n]; the most if the model does not know the label."""
        is_known = labels < len(self.of_labels)
        labels = np.where(is_known, labels, 0)
        if self.between is None:
            missed = ~np.take_along_axis(chosen, labels[:, None], axis=-1)[:, 0]
            found = self.of_labels[labels] * missed
        else:
            similar = np.where(chosen, self.between[labels], np.inf).min(axis=-1)
            found = np.minimum(self.of_labels[labels], similar)
        return np.where(is_known, found, self.largest)

    def mean(self, examples: Predictions, rule: SetRule) -> float:
        """What the sets of a rule cost on average; by the shares of classes that are the truth."""
        classes, shares = truths_of(examples)
        total = 0.0
        for chunk in chunks(examples.scores):
            chosen = np.asarray(rule(examples.scores[chunk]))
            for labels, share in zip(classes[chunk].T, shares[chunk].T, strict=True):
                total += float((share * self.of_sets(chosen, labels)).sum())
        return total / len(classes)


def truths_of(examples: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """The classes that are the truth of each example, and the share of each, both [n, m]."""
    if examples.truths is None:
        return examples.labels[:, None], np.ones((len(examples.labels), 1))
    return examples.truths.classes, examples.truths.shares.astype(np.float64)
