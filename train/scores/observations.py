"""Scores of observations: groups of examples, such as the photographs of one plant."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from absl import logging

from topk_jax import sets
from topk_jax.rules import CalibratedOn
from train.foundation.console import printable
from train.foundation.errors import UserError
from train.scores import scores as of_examples
from train.scores.scores import Scores, add_up_to_1, collect, exact_ranks

DEFAULT = "log_probabilities"
# How the scores of the examples of an observation become one: the ways by name.
COMBINATIONS = {
    DEFAULT: "the mean of their log-probabilities",
    "probabilities": "the mean of their probabilities",
    "maximum": "the largest of each class",
    "trained": "the mean of their log-probabilities times a weight by their number, which is "
    "fitted on the validation observations",
}
# The logarithm of a score of 0 would decide for all examples of the observation. Probabilities of
# 32 bits are 0 below this number.
_SMALLEST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Combination:
    """How the scores of the examples of an observation become one.

    Attributes:
        name: one of `COMBINATIONS`.
        weights: of "trained", after `fit`: the two numbers of `topk_jax.sets.group_weights`.
    """

    name: str = DEFAULT
    weights: tuple[float, float] | None = None

    def fit(self, scores: Scores) -> "Combination":
        """The combination with weights for the observations of these examples, if it has any.

        Raises:
            UserError: it needs probabilities, and these scores do not add up to 1.
        """
        if self.name != "trained":
            return self
        if not scores.are_probabilities():
            raise UserError(
                "to combine the examples of an observation by trained weights needs probabilities "
                "that add up to 1 for each example; these scores do not"
            )
        means = combine(scores, Combination(DEFAULT))
        known = np.flatnonzero(means.scores.known)
        # Two numbers need no more observations than have room in memory.
        chosen = known[:: max(1, len(known) * scores.values.shape[1] // of_examples.CHUNK)]
        logs = np.log(np.maximum(means.scores.values[chosen][:], _SMALLEST))
        weights = sets.group_weights(logs, means.sizes[chosen], means.scores.labels[chosen])
        one, doubling = np.asarray(weights).tolist()
        return Combination(self.name, (one, doubling))

    def pool(self, rows: np.ndarray, of: np.ndarray) -> np.ndarray:
        """The scores of observations in 64 bits, [g, L].

        They add up to 1 if the scores of each example of the observation do.

        Args:
            rows: the scores of their examples, [m, L].
            of: the observation of each example, [m], in ascending order.
        """
        assert self.name != "trained" or self.weights is not None
        _, starts, counts = np.unique(of, return_index=True, return_counts=True)
        add_up = np.logical_and.reduceat(add_up_to_1(rows), starts)
        sizes, rows = counts[:, None], rows.astype(np.float64)
        if self.name == "maximum":
            pooled = np.maximum.reduceat(rows, starts, axis=0)
        elif self.name == "probabilities":
            pooled = np.add.reduceat(rows, starts, axis=0) / sizes
        else:
            pooled = np.add.reduceat(np.log(np.maximum(rows, _SMALLEST)), starts, axis=0) / sizes
            if self.weights is not None:
                one, doubling = self.weights
                pooled *= one + doubling * np.log2(sizes)
            pooled = np.exp(pooled - np.where(add_up, pooled.max(axis=1), 0)[:, None])
        pooled /= np.where(add_up, pooled.sum(axis=1), 1)[:, None]
        return pooled


@dataclass(frozen=True, eq=False)
class Observations:
    """The observations of a split, in the order of their first examples.

    Attributes:
        scores: of the observations. Each has a name, and is a group of its own. Its loss is the
            mean loss of its examples.
        sizes: the number of examples of each observation.
        num_ambiguous: how many further observations have examples of different classes. They have
            no label, and are left out.
    """

    scores: Scores
    sizes: np.ndarray
    num_ambiguous: int


def combine(scores: Scores, combination: Combination) -> Observations:
    """The observations of examples that have groups.

    Raises:
        UserError: every observation has examples of different classes.
    """
    assert scores.numbered_groups is not None
    names, of = scores.numbered_groups
    _, firsts, sizes = np.unique(of, return_index=True, return_counts=True)
    titles = np.where(names == "", scores.names_or_numbers()[firsts], names)
    labels, is_clear = _labels(scores.labels, of)
    num_ambiguous, number = int(np.count_nonzero(~is_clear)), len(names)
    if num_ambiguous:
        first = printable(titles[is_clear.argmin()])
        several = f"{num_ambiguous:,} of {number:,} observations have examples of several classes"
        if num_ambiguous == number:
            raise UserError(f"{several}, the first is {first}: there are none to use")
        logging.warning("%s and are left out, the first is %s", several, first)
    # The examples of an observation, one after another.
    order = np.argsort(of, kind="stable")
    order = order[is_clear[of[order]]]
    losses = np.bincount(of, weights=scores.loss)[is_clear]
    names, titles, labels, sizes = (one[is_clear] for one in (names, titles, labels, sizes))
    # A label that is not known has no score, and its rank is the number of classes.
    known = np.where(labels < scores.values.shape[1], labels, -1)
    ranks = []

    def parts() -> Iterator[np.ndarray]:
        ends = np.cumsum(sizes)
        numbers = (ends - 1) // max(1, of_examples.CHUNK // scores.values.shape[1])
        for part in np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(numbers)) + 1):
            rows = order[ends[part[0]] - sizes[part[0]] : ends[part[-1]]]
            pooled = combination.pool(scores.values[rows], of[rows])
            ranks.append(exact_ranks(pooled, known[part]))
            yield pooled

    found = Scores(
        values=collect(parts(), len(sizes)),
        labels=labels,
        ranks=np.concatenate(ranks),
        loss=losses / sizes,
        classes=scores.classes,
        unknown_classes=scores.unknown_classes,
        names=titles,
        groups=names,
    )
    return Observations(found, sizes, num_ambiguous)


def have_several(scores: Scores) -> bool:
    """Whether the examples have groups, and one of these has several examples."""
    return scores.numbered_groups is not None and len(scores.numbered_groups[0]) < len(scores)


def have_labels(scores: Scores) -> bool:
    """Whether an observation of these examples has examples of one class."""
    assert scores.numbered_groups is not None
    return bool(_labels(scores.labels, scores.numbered_groups[1])[1].any())


def num_independent(scores: Scores) -> float:
    """How many independent examples say at least as much of a share as these."""
    of = None if scores.numbered_groups is None else scores.numbered_groups[1]
    return CalibratedOn.of(len(scores), of, "").groups


def _labels(labels: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The label of the first example of each observation, and whether all its examples have it."""
    firsts = np.unique(of, return_index=True)[1]
    found = labels[firsts]
    return found, np.bincount(of, labels != found[of]) == 0
