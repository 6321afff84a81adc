"""Which labels are probably wrong, and how many: confident learning.

Source: Northcutt, Jiang and Chuang (2021), "Confident learning: estimating uncertainty in dataset
labels".
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from topk_jax import metrics
from train.auditing import cross_fitting
from train.data import grouping
from train.data.examples import Examples
from train.foundation.errors import UserError
from train.scores import temperature
from train.scores.scores import Scores

# A probability that is 0 in 32 bits has a logarithm, too.
_LEAST = np.finfo(np.float32).tiny


@dataclass(frozen=True)
class Findings:
    """What the heads found about the labels. All arrays are in the order of the examples.

    Attributes:
        examples: the examples whose label can be judged.
        others: the examples of classes that are in no other fold.
        margins: the logarithm of the probability of the label over the largest one of the other
            classes, [n].
        probabilities: of the labels, [n].
        likely: the most probable classes, [n].
        confident: the class that each confidently belongs to, [n]; see
            `topk_jax.metrics.confident_classes`.
    """

    examples: Examples
    others: Examples
    margins: np.ndarray
    probabilities: np.ndarray
    likely: np.ndarray
    confident: np.ndarray

    @cached_property
    def order(self) -> np.ndarray:
        """The indices of the examples, by increasing margins."""
        return np.argsort(self.margins, kind="stable")

    @property
    def accuracy(self) -> float:
        """The share of labels that are the most probable class."""
        return float((self.likely == self.examples.labels).mean())

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of examples with each label, [L]."""
        return np.bincount(self.examples.labels, minlength=len(self.examples.class_names))

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Labels, the classes that examples with them probably belong to, and estimated numbers.

        The most frequent pairs come first. They are the entries of the calibrated confident joint
        that are not on its diagonal: each row of `topk_jax.metrics.confident_joint` is scaled to
        the number of examples of its label.
        """
        num_classes = len(self.counts)
        kept = self.confident >= 0
        both = [self.examples.labels[kept], self.confident[kept]]
        (label, likely), joint = np.unique(both, axis=1, return_counts=True)
        # Entries on the diagonal are at least 1.
        is_missing = ~np.isin(np.arange(num_classes), label[label == likely])
        rows = np.bincount(label, weights=joint, minlength=num_classes) + is_missing
        wrong = joint * self.counts[label] / rows[label]
        # Pairs with equal numbers stay in the order of their classes.
        order = np.argsort(-wrong, kind="stable")
        order = order[(label != likely)[order]]
        return label[order], likely[order], wrong[order]

    @cached_property
    def wrong_by_class(self) -> np.ndarray:
        """The estimated number of wrong labels among the examples with each label, [L]."""
        label, _, wrong = self.pairs
        return np.bincount(label, weights=wrong, minlength=len(self.counts))


def joined(parts: Sequence[Examples]) -> Examples:
    """The rows of features of the splits, which are rows of one array, as one table."""
    columns: dict[str, Any] = {}
    for name in ("places", "labels", "splits", "names", "groups"):
        column = [getattr(part, name) for part in parts]
        columns[name] = None if column[0] is None else np.concatenate(column)
    return dataclasses.replace(parts[0], truths=None, credits=None, **columns)


def find(
    examples: Examples, mean: ArrayLike, std: ArrayLike, *, num_folds: int, seed: int
) -> Findings:
    """Judges the labels of examples by cross-fitting; features have a mean and a deviation, [d].

    Raises:
        UserError: there are no two folds with examples of one class.
    """
    labels = examples.labels
    if examples.groups is None and examples.names is not None:
        names = examples.names.tolist()
        grouping.warn_of_likely(examples.where, names, labels, "an array group")
    folds = cross_fitting.folds_of(examples, num_folds=num_folds, seed=seed)
    of_folds, _ = np.unique([labels, folds], axis=1)
    judged = np.bincount(of_folds)[labels] > 1
    if not judged.any():
        raise UserError(
            "no label can be judged: each class has all of its examples in one fold, as if each "
            "class were one group"
        )
    centre = np.asarray(mean, np.float32)
    scale = 1 / (np.asarray(std, np.float32) * np.float32(np.sqrt(len(centre))))

    def rows(chosen: np.ndarray) -> np.ndarray:
        scaled = (examples.rows(chosen).astype(np.float32) - centre) * scale
        return np.pad(scaled, ((0, 0), (0, 1)), constant_values=1)

    found = cross_fitting.judge(examples, rows, folds, judged, seed=seed)
    assert found.indices is not None
    known = judged[found.indices]
    examples, others = examples.take(found.indices[known]), examples.take(~judged)
    found = found.take(np.flatnonzero(known))
    found = temperature.with_probabilities(found, temperature.fit(found))
    return of_probabilities(examples, others, found)


def of_probabilities(examples: Examples, others: Examples, scores: Scores) -> Findings:
    """The findings from the probabilities of the examples that can be judged; see `Findings`."""
    labels, num_classes = examples.labels, scores.values.shape[1]
    own = scores.map(lambda part, of: np.take_along_axis(part, of[:, None], 1)[:, 0], labels)
    # The thresholds of `topk_jax.metrics.confident_joint`, of scores that may be in a file: the
    # mean probability of each class over the examples with its label.
    sums, counts = (np.bincount(labels, weights, num_classes) for weights in (own, None))
    means = np.divide(sums, counts, out=np.full(len(sums), np.inf), where=counts > 0)
    thresholds = np.maximum(means, 2e-6).astype(np.float32)
    margins = scores.map(_margins, labels)
    likely = scores.map(lambda part: part.argmax(-1))
    confident = scores.map(lambda part: metrics.confident_classes(part, thresholds))
    return Findings(examples, others, margins, own, likely, confident)


def _margins(probabilities: np.ndarray, labels: np.ndarray) -> Any:
    return metrics.label_margins(np.log(np.maximum(probabilities, _LEAST)), labels)
