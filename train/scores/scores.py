"""What a classifier says of examples: their scores, and what is known of them."""

import dataclasses
import functools
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from topk_jax import metrics
from train.data.classes import Classes
from train.data.truths import Truths

# The numbers that are computed together, and the bytes of scores that stay in memory; more scores
# are in a temporary file.
CHUNK, MOST_IN_MEMORY = 2**22, 2**28
_DRAW_SEED = 20261125
# How far a sum of probabilities may be from 1, and a rounded probability above 1; the functions of
# `topk_jax.sets` allow as much.
_SUM_TOLERANCE, _ROUNDING = 1e-3, 1e-4


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """The scores of n examples for L classes, from any source, and what is known of the examples.

    Attributes:
        values: what sets are made of, float32 [n, L]; a memory map if they are many.
        labels: the classes of the examples, [n]. One from L on is a class that the classifier does
            not know: its rank is L, it is in no set, and its loss is NaN.
        ranks: how many classes come before the label, [n]; see `topk_jax.metrics.label_ranks`. They
            are of the logits: probabilities of 32 bits are 0 if a logit is 104 below the largest.
        loss: the loss of each example, [n].
        classes: the L classes.
        unknown_classes: the names of the classes from L on.
        names: of the examples, as the paths of files, [n]; None if they have none.
        groups: the names of what examples belong to, [n]; "" for an example by itself.
        indices: the places of the examples in their split, [n]; None if all are here.
        truths: what the labels stand for, [n], if the truth of an example is more than one class.
        class_ranks: the ranks of all classes of the truths, [n, m].
        outliers: how unusual the examples are, [n]; None if that is not needed.
    """

    values: np.ndarray
    labels: np.ndarray
    ranks: np.ndarray
    loss: np.ndarray
    classes: Classes
    unknown_classes: tuple[str, ...] = ()
    names: np.ndarray | None = None
    groups: np.ndarray | None = None
    indices: np.ndarray | None = None
    truths: Truths | None = None
    class_ranks: np.ndarray | None = None
    outliers: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def known(self) -> np.ndarray:
        """Whether the classifier knows the class of each example, [n]."""
        found: np.ndarray = self.labels < self.values.shape[1]
        return found

    @functools.cached_property
    def numbered_groups(self) -> tuple[np.ndarray, np.ndarray] | None:
        """What `numbered` finds in the groups; None without groups."""
        return None if self.groups is None else numbered(self.groups)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, with those that the classifier does not know."""
        return self.classes.names + self.unknown_classes

    @property
    def num_classes(self) -> int:
        """The number of classes, with those that the classifier does not know."""
        labels = self.labels if self.truths is None else self.truths.classes
        return max(self.values.shape[1], int(labels.max(initial=0)) + 1)

    @property
    def counts(self) -> np.ndarray | None:
        """The training examples of each class; classes that are not known have 0."""
        counts = self.classes.counts
        return None if counts is None else np.pad(counts, (0, self.num_classes - len(counts)))

    @property
    def counted_labels(self) -> np.ndarray:
        """The labels [v] that reports count: all classes of an example whose truth is several."""
        return self.labels if self.truths is None else self.truths.entries()

    @property
    def drawn(self) -> np.ndarray:
        """A label of each example to calibrate on, [n]; drawn if the truth is several classes.

        It is drawn from the shares of the classes that are known, and always the same.
        """
        if self.truths is None:
            return self.labels
        return self.truths.among(self.values.shape[1]).draw(np.random.default_rng(_DRAW_SEED))

    def labels_and_shares(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The labels [n] and None; or the classes of the truths and their shares, [n, m] both.

        They are among the known classes: others have a share of 0.
        """
        if self.truths is None:
            return self.labels, None
        truths = self.truths.among(self.values.shape[1])
        return truths.classes, truths.shares

    def names_or_numbers(self) -> np.ndarray:
        """The names of the examples, [n]; "example N", counted from 0, if they have none."""
        if self.names is not None:
            return self.names
        places = range(len(self)) if self.indices is None else self.indices.tolist()
        return np.array([f"example {place}" for place in places], object)

    def mean_loss(self) -> float:
        """The mean of the losses of examples of known classes."""
        return float(self.loss[self.known].mean(dtype=np.float64))

    def take(self, indices: np.ndarray) -> "Scores":
        """The scores of the examples at some indices."""
        if np.array_equal(indices, np.arange(len(self))):
            return self  # Scores in a file stay there.
        given = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        of_examples = {
            name: array[indices]
            for name, array in given.items()
            if isinstance(array, np.ndarray | Truths)
        }
        return Scores(**given | of_examples)

    def of_known(self) -> "Scores":
        """The scores of the examples of known classes."""
        return self.take(np.flatnonzero(self.known))

    def chunks(self) -> Iterator[slice]:
        """Slices of the examples that are computed together."""
        return slices(*self.values.shape)

    def map(self, function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
        """What a function makes of the values, and of arrays, of each chunk, [n, ...]."""
        return np.concatenate(
            [
                np.asarray(function(self.values[chunk], *(array[chunk] for array in arrays)))
                for chunk in self.chunks()
            ]
        )

    def are_probabilities(self) -> bool:
        """Whether the scores of each example add up to 1; scores of multi-label losses need not."""
        return are_probabilities(self.values)

    def are_from_0_to_1(self) -> bool:
        """Whether each score might be a rounded probability, or NaN."""
        return not self.map(lambda part: ((part < 0) | (part > 1 + _ROUNDING)).any(axis=1)).any()

    def with_truths(self, truths: Truths, class_ranks: np.ndarray | None = None) -> "Scores":
        """The same with the truths of the examples; classes that are not known rank last.

        Args:
            truths: the truths, [n].
            class_ranks: the ranks of `Truths.among` the known classes, [n, m]; None to find them
                by the scores.
        """
        known = self.values.shape[1]
        if class_ranks is None:
            class_ranks = self.map(_class_ranks, truths.among(known).classes)
        class_ranks = np.where(truths.classes < known, class_ranks, known)
        return dataclasses.replace(self, truths=truths, class_ranks=class_ranks)


@jax.jit
def _class_ranks(scores: jax.Array, classes: jax.Array) -> jax.Array:
    ranks: jax.Array = jax.vmap(metrics.label_ranks, in_axes=(None, 1), out_axes=1)(scores, classes)
    return ranks


def slices(num_examples: int, num_classes: int) -> Iterator[slice]:
    """Slices of the examples whose scores are computed together."""
    size = max(1, CHUNK // num_classes)
    return (slice(start, start + size) for start in range(0, num_examples, size))


def are_probabilities(values: np.ndarray) -> bool:
    """Whether the scores of each example, [n, L], are 0 or more and add up to 1."""
    parts = (values[chunk] for chunk in slices(*values.shape))
    return all(bool(add_up_to_1(part).all() and (part >= 0).all()) for part in parts)


def add_up_to_1(rows: np.ndarray) -> np.ndarray:
    """Whether the scores of each of a few examples add up to 1, [m]."""
    add_up: np.ndarray = np.abs(rows.sum(axis=1, dtype=np.float64) - 1) <= _SUM_TOLERANCE
    return add_up


def exact_ranks(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The label ranks of unrounded scores [n, L]; JAX by default rounds them to 32 bits."""
    with jax.enable_x64(True):
        return np.asarray(metrics.label_ranks(values, labels))


def collect(parts: Iterable[np.ndarray], num_examples: int) -> np.ndarray:
    """Scores in 32 bits of at most that many examples, in one or more parts [any, L].

    They are in memory, or many in a temporary file that is mapped into it.
    """
    parts = iter(parts)
    first = next(parts)
    parts = itertools.chain([first], parts)
    if 4 * num_examples * first.shape[1] <= MOST_IN_MEMORY:
        return np.concatenate([np.asarray(part, np.float32) for part in parts])
    with tempfile.TemporaryFile() as file:  # The map keeps it.
        for part in parts:
            # Written, because a full disk ends a process that writes to a map.
            file.write(np.ascontiguousarray(part, np.float32).data)
        file.flush()
        return np.memmap(file, np.float32, "r").reshape(-1, first.shape[1])


def numbered(groups: Sequence[str] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The names of the groups in the order of their first examples, and the numbers of examples.

    Args:
        groups: the group of each example, texts [n]; "" for an example that is a group of its own.

    Returns:
        The names, [m], "" for an example by itself; and for each example the place of its group
        there, [n].
    """
    numbers: dict[str | int, int] = {}
    keys = (name or place for place, name in enumerate(groups))
    of = [numbers.setdefault(key, len(numbers)) for key in keys]
    names = [key if isinstance(key, str) else "" for key in numbers]
    return np.array(names, object), np.array(of, np.int64)
