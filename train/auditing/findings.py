"""Which labels are probably wrong, and how many: confident learning.

Source: Northcutt, Jiang and Chuang (2021), "Confident learning: estimating uncertainty in dataset
labels".
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from topk_jax import metrics
from train.auditing import cross_fitting, folds
from train.auditing.examples import AuditedExamples
from train.evaluation import temperature
from train.evaluation.predictions import Predictions, chunks
from train.foundation.errors import UserError

# A probability that is 0 in 32 bits has a logarithm, too.
_LEAST = np.finfo(np.float32).tiny
# As in `topk_jax.metrics.confident_joint`.
_LEAST_THRESHOLD = 2e-6


@dataclass(frozen=True)
class Pair:
    """A label, and a class that some of its examples probably belong to.

    Attributes:
        label: the label.
        likely: the class.
        wrong: the estimated number of the examples.
    """

    label: int
    likely: int
    wrong: float


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

    examples: AuditedExamples
    others: AuditedExamples
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
    def pairs(self) -> list[Pair]:
        """The pairs with wrong labels, the most frequent first.

        These are the entries of the calibrated confident joint that are not on its diagonal: each
        row of `topk_jax.metrics.confident_joint` is scaled to the number of examples of its label.
        """
        num_classes = len(self.counts)
        kept = self.confident >= 0
        codes = self.examples.labels[kept] * np.int64(num_classes) + self.confident[kept]
        codes, joint = np.unique(codes, return_counts=True)
        label, likely = np.divmod(codes, num_classes)
        # Entries on the diagonal are at least 1.
        is_missing = ~np.isin(np.arange(num_classes), label[label == likely])
        rows = np.bincount(label, weights=joint, minlength=num_classes) + is_missing
        wrong = joint * self.counts[label] / rows[label]
        # Pairs with equal numbers stay in the order of their classes.
        order = np.argsort(-wrong, kind="stable")
        order = order[(label != likely)[order]]
        columns = (label[order].tolist(), likely[order].tolist(), wrong[order].tolist())
        return [Pair(*row) for row in zip(*columns, strict=True)]

    @cached_property
    def wrong_by_class(self) -> np.ndarray:
        """The estimated number of wrong labels among the examples with each label, [L]."""
        found = np.zeros(len(self.counts))
        for pair in self.pairs:
            found[pair.label] += pair.wrong
        return found


def find(examples: AuditedExamples, *, num_folds: int, seed: int) -> Findings:
    """Judges the labels of examples by cross-fitting.

    Args:
        examples: the examples.
        num_folds: the number of folds, and of heads.
        seed: of the folds, and of the order of the examples in training.

    Raises:
        UserError: there are no two folds with examples of one class.
    """
    of_all = folds.assign(examples.labels, examples.groups, num_folds=num_folds, seed=seed)
    order = np.argsort(of_all, kind="stable")
    examples, of_all = examples.take(order), of_all[order]
    judged = folds.are_judged(examples.labels, of_all)
    if not judged.any():
        raise UserError(
            "no label can be judged: each class has all of its examples in one fold",
            usually="each class is one group",
        )
    found = cross_fitting.judge(examples, of_all, judged, seed=seed)
    kept = np.flatnonzero(judged)
    others = examples.take(np.flatnonzero(~judged))
    examples, found = examples.take(kept), found.take(kept)
    found = temperature.with_probabilities(found, temperature.fit(found))
    return of_probabilities(examples, others, found)


def of_probabilities(
    examples: AuditedExamples, others: AuditedExamples, found: Predictions
) -> Findings:
    """The findings from the probabilities of the examples that can be judged; see `Findings`."""
    labels, thresholds = examples.labels, _thresholds(found)
    parts = []
    for chunk in chunks(found.scores):
        scores, own = found.scores[chunk], labels[chunk]
        parts.append(
            (
                np.asarray(metrics.label_margins(np.log(np.maximum(scores, _LEAST)), own)),
                scores[np.arange(len(own)), own],
                scores.argmax(axis=-1),
                np.asarray(metrics.confident_classes(scores, thresholds)),
            )
        )
    return Findings(examples, others, *map(np.concatenate, zip(*parts, strict=True)))


def _thresholds(found: Predictions) -> np.ndarray:
    """The mean probability of each class over the examples with its label, float32 [L].

    These are the thresholds of `topk_jax.metrics.confident_joint`, of scores that may be in a file.
    """
    own = [
        found.scores[chunk][np.arange(len(labels)), labels]
        for chunk in chunks(found.scores)
        for labels in [found.labels[chunk]]
    ]
    num_classes = found.scores.shape[1]
    sums = np.bincount(found.labels, weights=np.concatenate(own), minlength=num_classes)
    counts = np.bincount(found.labels, minlength=num_classes)
    with np.errstate(invalid="ignore"):
        means = np.where(counts > 0, sums / counts, np.inf)
    return np.maximum(means, _LEAST_THRESHOLD).astype(np.float32)
