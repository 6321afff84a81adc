"""Predictions for observations: groups of examples, such as the photographs of one plant."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from absl import logging

from topk_jax import sets
from train.evaluation import combinations, example_groups, score_files
from train.evaluation.predictions import Predictions, chunks, ranks_in_64_bits
from train.evaluation.stored_scores import CollectedScores
from train.foundation.errors import UserError
from train.foundation.printable import printable

# Scores in 64 bits that are added up at the same time.
_MOST_SUMS = 2**23
# The logarithm of a score of 0 would decide for all examples of the observation. Probabilities of
# 32 bits are 0 below this number.
_SMALLEST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Combination:
    """How the scores of the examples of an observation become one.

    Attributes:
        name: one of `combinations.COMBINATIONS`.
        weights: the two numbers of `topk_jax.sets.group_weights`; None if the name is not
            "trained".
    """

    name: str
    weights: tuple[float, float] | None = None

    def __str__(self) -> str:
        return self.name


class Pools:
    """The scores of several observations, whose examples come in any order.

    Args:
        combination: how scores are combined.
        number: of observations.
        num_classes: the number L of classes.
    """

    def __init__(self, combination: Combination, number: int, num_classes: int) -> None:
        self._combination = combination
        is_maximum = combination.name == "maximum"
        self._reduce = np.maximum if is_maximum else np.add
        self._pooled = np.full((number, num_classes), -np.inf if is_maximum else 0.0)
        self._add_up = np.ones(number, np.bool_)
        self.sizes = np.zeros(number, np.int64)

    def add(self, of: np.ndarray, scores: np.ndarray) -> None:
        """Adds examples.

        Args:
            of: the observation of each example, [m], in ascending order; at least one.
            scores: their scores, [m, L].
        """
        of_logs = self._combination.name in (combinations.DEFAULT, combinations.TRAINED)
        rows = scores.astype(np.float64)
        if of_logs:
            rows = np.log(np.maximum(rows, _SMALLEST))
        present, starts, counts = np.unique(of, return_index=True, return_counts=True)
        pooled = self._reduce.reduceat(rows, starts, axis=0)
        self._pooled[present] = self._reduce(self._pooled[present], pooled)
        self._add_up[present] &= np.logical_and.reduceat(score_files.add_up_to_1(scores), starts)
        self.sizes[present] += counts

    def scores(self) -> np.ndarray:
        """The scores of the observations in 64 bits, [number, L]; each has an example.

        They add up to 1 if the scores of each example of the observation do.
        """
        sizes, name = self.sizes[:, None], self._combination.name
        if name == "maximum":
            result = self._pooled
        elif name == "probabilities":
            result = self._pooled / sizes
        else:
            logs = self._pooled / sizes
            if self._combination.weights is not None:
                one, doubling = self._combination.weights
                logs = logs * (one + doubling * np.log2(sizes))
            top = np.where(self._add_up, logs.max(axis=-1), 0)[:, None]
            result = np.exp(logs - top)
        totals = np.where(self._add_up, result.sum(axis=-1), 1)[:, None]
        normalized: np.ndarray = result / totals
        return normalized


@dataclass(frozen=True)
class Observations:
    """The observations of a split, in the order of their first examples.

    Attributes:
        predictions: the predictions for the observations. Each has a name, and is a group of its
            own. Its loss is the mean loss of its examples.
        sizes: the number of examples of each observation.
        num_ambiguous: how many further observations have examples of different classes. They have
            no label, and are left out.
    """

    predictions: Predictions
    sizes: np.ndarray
    num_ambiguous: int

    def __len__(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True, eq=False)
class InGroups:
    """Examples that have groups, and how the examples of a group become an observation.

    Attributes:
        examples: the predictions for the examples.
        combined_by: one of `combinations.COMBINATIONS`.
    """

    examples: Predictions
    combined_by: str

    @cached_property
    def combination(self) -> Combination:
        """What `fit` finds for these examples."""
        return fit(self.combined_by, self.examples)

    @cached_property
    def observations(self) -> Observations:
        """What `combine` makes of them. It takes a pass over all scores, and may warn."""
        return combine(self.examples, self.combination)


def fit(name: str, examples: Predictions) -> Combination:
    """The combination of a name; "trained" is fitted on the observations of these examples.

    Raises:
        UserError: "trained" needs probabilities, and these scores do not add up to 1.
    """
    if name != combinations.TRAINED:
        return Combination(name)
    if not score_files.are_probabilities(examples.scores):
        raise UserError(
            "to combine the examples of an observation by trained weights needs probabilities that "
            "add up to 1 for each example; these scores do not"
        )
    means = combine(examples, Combination(combinations.DEFAULT))
    found = means.predictions
    known = np.flatnonzero(found.is_known)
    # Two numbers need no more observations than have room in memory.
    step = max(1, len(known) * found.scores.shape[1] // _MOST_SUMS)
    chosen = known[::step]
    logs = np.log(np.maximum(found.scores[chosen][:], _SMALLEST))
    weights = sets.group_weights(logs, means.sizes[chosen], found.labels[chosen])
    one, doubling = np.asarray(weights).tolist()
    return Combination(name, (one, doubling))


def combine(examples: Predictions, combination: Combination) -> Observations:
    """The observations of examples that have groups.

    Raises:
        UserError: every observation has examples of different classes.
    """
    assert examples.groups is not None
    names, of = example_groups.numbered(examples.groups)
    _, firsts = np.unique(of, return_index=True)
    titles = np.where(names == "", examples.names_or_numbers()[firsts], names)
    sizes = np.bincount(of)
    lowest, highest = _extreme_labels(of, examples.labels)
    ambiguous = np.flatnonzero(lowest != highest)
    if ambiguous.size:
        first = printable(titles[ambiguous[0]])
        if ambiguous.size == len(names):
            raise UserError(
                f"an observation must have examples of one class; each of the {len(names):,} has "
                f"several, the first is {first}"
            )
        logging.warning(
            "observations with examples of several classes have no label and are left out: %s of "
            "%s, the first is %s",
            f"{ambiguous.size:,}",
            f"{len(names):,}",
            first,
        )
        # Numbered without them.
        kept = np.flatnonzero(lowest == highest)
        places = np.full(len(names), -1)
        places[kept] = np.arange(len(kept))
        of, sizes, lowest = places[of], sizes[kept], lowest[kept]
        names, titles = names[kept], titles[kept]
    labels = lowest.astype(examples.labels.dtype)
    with_label = of >= 0
    losses = np.bincount(of[with_label], weights=examples.loss[with_label], minlength=len(names))
    collected = CollectedScores(len(names))
    ranks = []
    # A label that the model does not know has no score, and its rank is the number of classes.
    known = np.where(labels < examples.scores.shape[1], labels, -1)
    for start, pooled in _pooled(examples.scores, of, len(names), combination):
        ranks.append(ranks_in_64_bits(pooled, known[start : start + len(pooled)]))
        collected.add(pooled.astype(np.float32))
    predictions = Predictions(
        loss=(losses / sizes).astype(examples.loss.dtype),
        scores=collected.scores(),
        labels=labels,
        ranks=np.concatenate(ranks).astype(examples.ranks.dtype),
        names=titles,
        groups=names,
    )
    return Observations(predictions, sizes, ambiguous.size)


def have_labels(examples: Predictions) -> bool:
    """Whether an observation of these examples has examples of one class."""
    assert examples.groups is not None
    _, of = example_groups.numbered(examples.groups)
    lowest, highest = _extreme_labels(of, examples.labels)
    return bool((lowest == highest).any())


def _extreme_labels(of: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest label of each observation; `of` has the one of each example."""
    number = int(of.max()) + 1
    lowest, highest = np.full(number, np.iinfo(np.int64).max), np.full(number, -1)
    np.minimum.at(lowest, of, labels)
    np.maximum.at(highest, of, labels)
    return lowest, highest


def _pooled(
    scores: np.ndarray, of: np.ndarray, number: int, combination: Combination
) -> Iterator[tuple[int, np.ndarray]]:
    """The first of some observations, and their scores in 64 bits, part by part.

    The examples of an observation can be anywhere. Each part of the observations needs one pass
    over the chunks that have examples of it.
    """
    num_classes = scores.shape[1]
    size = max(1, _MOST_SUMS // num_classes)
    for start in range(0, number, size):
        pools = Pools(combination, min(size, number - start), num_classes)
        for chunk in chunks(scores):
            here = np.flatnonzero((of[chunk] >= start) & (of[chunk] < start + size))
            if here.size:
                order = here[np.argsort(of[chunk][here], kind="stable")]
                pools.add(of[chunk][order] - start, scores[chunk][order])
        yield start, pools.scores()
