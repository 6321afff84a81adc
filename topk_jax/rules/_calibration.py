"""The examples that a rule is calibrated on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from topk_jax.taxonomy import Taxonomy

# Examples, and scores of these, that are processed together to save memory.
_CHUNK, _MOST_SCORES = 2**12, 2**22
# Of the labels that are drawn from shares.
_DRAW_SEED = 20261125
# How far the sum of the probabilities of an example may be from 1.
_SUM_TOLERANCE = 1e-3
# By how much a rounded probability may exceed 1; the functions of `topk_jax.sets` allow as much.
_ROUNDING = 1e-4


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """What is known of n examples of L classes; see `fit`.

    Attributes:
        scores: the scores, [n, L]; a memory map is read in chunks.
        classes: the classes that the truth of each example is made of, [n, m], the one that stands
            for it first. Places that an example does not need repeat it.
        shares: the share of each of these, [n, m]; None if each truth is one class.
    """

    scores: np.ndarray
    classes: np.ndarray
    shares: np.ndarray | None = None
    class_counts: np.ndarray | None = None
    taxonomy: Taxonomy | None = None
    costs: np.ndarray | None = None
    similar: np.ndarray | None = None

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.scores)

    @property
    def num_classes(self) -> int:
        """The number of classes L."""
        return int(self.scores.shape[1])

    @cached_property
    def labels(self) -> np.ndarray:
        """A class of each example, [n]: drawn with the probability of its share, always the same.

        The most likely class would promise nothing about the others.
        """
        if self.shares is None:
            return self.classes[:, 0]
        sums = self.shares.cumsum(axis=1, dtype=np.float64)
        total, generator = sums[:, -1:], np.random.default_rng(_DRAW_SEED)
        places = (sums <= generator.random((len(self), 1)) * total).sum(axis=1)
        # Rounding may put a number above all sums.
        places = np.minimum(places, (sums < total).sum(axis=1))
        drawn: np.ndarray = self.classes[np.arange(len(self)), places]
        return drawn

    def counts_for(self, what: str) -> np.ndarray:
        """The training examples of each class, or a `ValueError` that tells what needs them."""
        counts = self.class_counts
        if counts is None:
            raise ValueError(f"{what} needs class_counts, the training examples of each class")
        if few := (counts < 1).sum():
            raise ValueError(
                f"{what} needs training examples of every class; {few} of {len(counts)} classes "
                "have none"
            )
        return counts

    def chunks(self) -> Iterator[slice]:
        """The examples in chunks that are processed together."""
        size = max(1, min(_CHUNK, _MOST_SCORES // self.num_classes))
        for start in range(0, len(self), size):
            yield slice(start, start + size)

    def map(self, function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
        """`function` of scores [c, L] and of arrays [c, ...], for all examples."""
        parts = (
            np.asarray(function(self.scores[chunk], *(array[chunk] for array in arrays)))
            for chunk in self.chunks()
        )
        return np.concatenate([*parts])

    def are_probabilities(self) -> bool:
        """Whether the scores of each example add up to 1."""

        def add_up(part: np.ndarray) -> np.ndarray:
            excess = part.sum(axis=-1, dtype=np.float64) - 1
            found: np.ndarray = (np.abs(excess) <= _SUM_TOLERANCE) & (part >= 0).all(axis=-1)
            return found

        return all(bool(add_up(self.scores[chunk]).all()) for chunk in self.chunks())

    def are_from_0_to_1(self) -> bool:
        """Whether each score might be a rounded probability, or NaN."""
        parts = (self.scores[chunk] for chunk in self.chunks())
        return not any(bool(((part < 0) | (part > 1 + _ROUNDING)).any()) for part in parts)
