"""The truth of examples if it is more than one class: votes of annotators, or several labels.

A row over the classes is kept sparse, as the few classes that have a share of it.
"""

from dataclasses import dataclass

import numpy as np

# The values of `config.dataset.labels`: one class, votes for what the one class is, or several
# classes that are present at once.
ONE, VOTES, SEVERAL = "one", "votes", "several"


@dataclass(frozen=True)
class Truths:
    """The classes that the truth of each of n examples consists of, m at most.

    Attributes:
        classes: the classes, int32 [n, m], the one that stands for the example first. The places
            that an example does not need repeat it.
        shares: the share of each class, float32 [n, m]; they add up to 1, and the places that are
            not needed have 0. Labels that are present at once have equal shares.
        kind: what they are, `VOTES` or `SEVERAL`.
    """

    classes: np.ndarray
    shares: np.ndarray
    kind: str

    @classmethod
    def of_entries(
        cls, examples: np.ndarray, classes: np.ndarray, shares: np.ndarray, kind: str
    ) -> "Truths":
        """The truths of entries: an example, a class and its weight, each pair at most once.

        Args:
            examples: the examples of the entries, [v]; each from 0 to the largest has one.
            classes: their classes, [v].
            shares: their weights, [v], above 0; the weights of an example are divided by their sum.
            kind: what they are.
        """
        # The rarest label stands for the example: splits are held out of each class.
        first = np.bincount(classes)[classes] if kind == SEVERAL else -shares
        order = np.lexsort((classes, first, examples))
        examples, classes, shares = examples[order], classes[order], shares[order]
        counts = np.bincount(examples)
        starts = np.cumsum(counts) - counts
        place = np.arange(len(examples)) - starts[examples]
        size = len(counts), int(counts.max())
        found = np.repeat(classes[starts][:, None], size[1], axis=1).astype(np.int32)
        found[examples, place] = classes
        parts = np.zeros(size, np.float32)
        totals = np.bincount(examples, weights=shares)
        parts[examples, place] = shares / totals[examples]
        return cls(found, parts, kind)

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.classes)

    def __getitem__(self, chosen: np.ndarray | slice) -> "Truths":
        """The truths of some examples."""
        return Truths(self.classes[chosen], self.shares[chosen], self.kind)

    @property
    def labels(self) -> np.ndarray:
        """The class that stands for each example, [n]: the most voted one, or the rarest label."""
        labels: np.ndarray = self.classes[:, 0]
        return labels

    def renumbered(self, number: np.ndarray) -> "Truths":
        """The truths after class c got the number `number[c]`."""
        return Truths(number[self.classes].astype(np.int32), self.shares, self.kind)

    def entries(self) -> np.ndarray:
        """The classes of all examples, one after another, [v]."""
        found: np.ndarray = self.classes[self.shares > 0]
        return found

    def occurrences(self, num_classes: int) -> np.ndarray:
        """In how many examples each class occurs, [L]."""
        return np.bincount(self.entries(), minlength=num_classes)

    def class_counts(self, num_classes: int) -> np.ndarray:
        """The examples of each class, [L]: those with the label, or the sum of its votes' shares.

        The sum is rounded, and a class with a vote has at least 1.
        """
        found = self.occurrences(num_classes)
        if self.kind == SEVERAL:
            return found
        sums = np.bincount(self.classes.ravel(), self.shares.ravel(), minlength=num_classes)
        return np.where(found > 0, np.maximum(np.rint(sums), 1), 0).astype(np.int64)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """The mean of values of the classes of each example, [n, m], by their shares: [n]."""
        found: np.ndarray = np.where(self.shares > 0, self.shares * values, 0).sum(axis=1)
        return found

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """A class of each example, [n], with the probability of its share."""
        sums = self.shares.cumsum(axis=1, dtype=np.float64)
        total = sums[:, -1:]
        places = (sums <= generator.random((len(self), 1)) * total).sum(axis=1)
        # Rounding may put a number above all sums.
        places = np.minimum(places, (sums < total).sum(axis=1))
        drawn: np.ndarray = self.classes[np.arange(len(self)), places]
        return drawn

    def among(self, num_classes: int) -> "Truths":
        """The truths over only the first classes; an example with none of these has class 0."""
        known = (self.classes < num_classes) & (self.shares > 0)
        shares = np.where(known, self.shares, 0)
        first = np.take_along_axis(self.classes, known.argmax(axis=1)[:, None], axis=1)
        first = np.where(known.any(axis=1, keepdims=True), first, 0)
        totals = shares.sum(axis=1, keepdims=True)
        shares = np.divide(shares, totals, out=np.zeros_like(shares), where=totals > 0)
        return Truths(np.where(known, self.classes, first), shares, self.kind)

    def arrays(self, chosen: np.ndarray | slice) -> dict[str, np.ndarray]:
        """The arrays of some examples in a batch."""
        classes, shares = self.classes[chosen], self.shares[chosen]
        weights = {"present": shares > 0} if self.kind == SEVERAL else {"shares": shares}
        return {"classes": classes, **weights}

    def in_words(self) -> str:
        """What these are, and what accuracies then mean."""
        mean = np.count_nonzero(self.shares) / len(self)
        what, of = ("votes", "votes") if self.kind == VOTES else ("several labels", "labels")
        return (
            f"{what}: {mean:.2f} classes an example on average, at most {self.shares.shape[1]}; "
            f"accuracies are the part of the {of} of an example that is in its set"
        )

    def to_bytes(self) -> bytes:
        """What a digest is made of."""
        parts = self.classes.astype("<i4"), self.shares.astype("<f4")
        return self.kind.encode() + b"".join(part.tobytes() for part in parts)

    def corrected(self, examples: np.ndarray, labels: np.ndarray) -> "Truths":
        """The truths with one class for each of some examples, which a person has corrected."""
        classes, shares = self.classes.copy(), self.shares.copy()
        classes[examples] = labels[:, None]
        shares[examples] = np.arange(shares.shape[1]) == 0
        return Truths(classes, shares, self.kind)
