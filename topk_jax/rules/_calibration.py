"""The examples that a rule is calibrated on, and how many it needs."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Self

import numpy as np
from jax.typing import ArrayLike

from topk_jax.taxonomy import Taxonomy

__all__ = ["CalibratedOn", "TooFewError"]

# The most examples, and scores of these, that are processed together.
_CHUNK, _MOST_SCORES = 2**12, 2**22
# Of the labels that are drawn from shares.
_DRAW_SEED = 20261125
# How far the sum of the probabilities of an example may be from 1.
_SUM_TOLERANCE = 1e-3


class TooFewError(ValueError):
    """The calibration examples are too few for what the sets are to promise."""


@dataclass(frozen=True)
class CalibratedOn:
    """The examples that limits come from: their number, and what they are, `on`, in words.

    `groups` independent examples say as much, at least; these are fewer if those of a group are
    alike.
    """

    examples: int
    groups: float
    on: str

    @classmethod
    def of(cls, examples: int, groups: ArrayLike | None, on: str) -> Self:
        """What n examples are, with the group of each, `[n]`, or by themselves."""
        if groups is None:
            return cls(examples, float(examples), on)
        # Groups of different sizes say as much as fewer of one size (Kish 1965, "Survey sampling").
        sizes = np.unique(groups, return_counts=True)[1].astype(np.float64)
        return cls(examples, float(examples**2 / np.square(sizes).sum()), on)

    def law(self, coverage: float) -> tuple[float, float] | None:
        """The two parameters of the beta distribution that the true coverage of the limits has.

        The limit is the score of rank r = ceil((n + 1) coverage) among n, and the coverage is then
        beta(r, n + 1 - r). If the examples of each of g groups are alike, it is the score of rank
        g r / n among the groups. None for limits of which nothing is promised.
        """
        rank = math.ceil((self.examples + 1) * Decimal(repr(coverage)))
        if not 0 < rank <= self.examples:
            return None
        below = self.groups * rank / self.examples
        return below, self.groups + 1 - below


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """What is known of n examples of L classes; see `fit`.

    Attributes:
        scores: the scores, [n, L]; a memory map is read in chunks.
        classes: the classes that the truth of each example is made of, [n, m]. Places that an
            example does not need have one of these, too.
        shares: the share of each of these, [n, m]; None if each truth is one class.
    """

    scores: np.ndarray
    classes: np.ndarray
    shares: np.ndarray | None = None
    class_counts: np.ndarray | None = None
    taxonomy: Taxonomy | None = None
    costs: np.ndarray | None = None
    similar: np.ndarray | None = None
    outliers: np.ndarray | None = None

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.scores)

    @property
    def num_classes(self) -> int:
        """The number of classes L."""
        return int(self.scores.shape[1])

    @cached_property
    def labels(self) -> np.ndarray:
        """A class of each example, [n]: drawn by the shares, always the same."""
        if self.shares is None:
            return self.classes[:, 0]
        # The most likely class would promise nothing about the others.
        sums = self.shares.cumsum(axis=1, dtype=np.float64)
        total, generator = sums[:, -1:], np.random.default_rng(_DRAW_SEED)
        places = (sums <= generator.random((len(self), 1)) * total).sum(axis=1)
        # Rounding may put a number above all sums.
        places = np.minimum(places, (sums < total).sum(axis=1))
        drawn: np.ndarray = self.classes[np.arange(len(self)), places]
        return drawn

    def given(self, name: str) -> Any:
        """An argument of `fit` that the rule needs, or a `ValueError` if it was not given."""
        if getattr(self, name) is None:
            raise ValueError(f"{name} must be given for such a rule")
        return getattr(self, name)

    def chunks(self) -> Iterator[slice]:
        """The examples in parts that fit in memory."""
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

    def check_distributions(self) -> None:
        """Raises `ValueError` if the scores of an example do not add up to 1."""

        def total(part: np.ndarray) -> np.ndarray:
            return np.where((part >= 0).all(axis=-1), part.sum(axis=-1, dtype=np.float64), np.nan)

        if not (np.abs(self.map(total) - 1) <= _SUM_TOLERANCE).all():
            raise ValueError("scores must be probabilities that add up to 1 for each example")

    def check_number(self, ratio: Decimal, *, by_class: bool = False) -> None:
        """Raises `TooFewError` if limits could only be those of sets of all classes.

        `ratio` is how often the allowed error is in the largest one.
        """
        fewest = math.ceil(ratio) - 1
        number = int(np.bincount(self.labels).max()) if by_class else len(self)
        if number < fewest:
            raise TooFewError(
                f"the limits need at least {fewest:,} examples{' of a class' * by_class} to "
                f"calibrate on; there are {number:,}"
            )
