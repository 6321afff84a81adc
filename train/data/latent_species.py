"""What the laws of `synthetic_species` and `synthetic_latents` share: classes, labels and seeds."""

import abc
import functools
import heapq
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from train.foundation.errors import UserError

LATENT_SIZE = 16
# Two draws of standard deviation s in each coordinate of a latent are at the distance √(2 d) s, as
# a root mean square. With this standard deviation the distance is 1.
DEVIATION = 1 / math.sqrt(2 * LATENT_SIZE)

# Each of these is drawn from the seed with random streams of its own, one for each purpose. A name
# that is added stands at the end: the place is part of the seed.
_STREAMS = (
    "genera",
    "species",
    "ranks",
    "directions",
    "train",
    "validation",
    "test",
    "integration",
    "balanced_test",
    "scales",
)
_PURPOSES = ("", "labels", "organs")


class LatentExamples(NamedTuple):
    """Latents float64 [n, 16] and labels int64 [n]."""

    latents: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True, kw_only=True)
class LatentSpecies(abc.ABC):
    """Species within genera, and a latent of 16 numbers for each example.

    Attributes:
        num_classes: the number of species L. Their numbers in two genera differ by at most one.
        num_genera: the number of genera.
        ambiguity: how similar the species of a genus are. Their distances are in proportion to
            1 / ambiguity.
        long_tail_exponent: the prior falls geometrically from the most to the least frequent
            species, by the factor exp(-long_tail_exponent) in all; 0 is balanced. The frequency of
            a species is drawn from the seed, independently of its genus.
        seed: the seed of the law and of all examples.
    """

    num_classes: int = 100
    num_genera: int = 20
    ambiguity: float = 0.8
    long_tail_exponent: float = 6.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_integer("num_classes", self.num_classes, minimum=2)
        check_integer("num_genera", self.num_genera, minimum=1, maximum=self.num_classes)
        # Below, eight bits no longer resolve the noise.
        check_number("ambiguity", self.ambiguity, minimum=0.01, maximum=100)
        check_number("long_tail_exponent", self.long_tail_exponent, minimum=0, maximum=100)
        check_integer("seed", self.seed, minimum=0, maximum=2**32 - 1)

    @functools.cached_property
    def genera(self) -> np.ndarray:
        """The genus of each class, int64 [L]."""
        return np.arange(self.num_classes) * self.num_genera // self.num_classes

    @property
    def fewest_training_examples(self) -> int:
        """The least number of training examples: one of each class."""
        return self.num_classes

    @functools.cached_property
    def class_names(self) -> list[str]:
        """Names such as "genus_07 species_03", in the order of the classes."""
        within = np.arange(self.num_classes) - np.searchsorted(self.genera, self.genera)
        pairs = zip(self.genera, within, strict=True)
        return [f"genus_{genus:02d} species_{species:02d}" for genus, species in pairs]

    @functools.cached_property
    def log_prior(self) -> np.ndarray:
        """Log π_y, float64 [L]."""
        ranks = self._stream("ranks").permutation(self.num_classes)
        logits = -self.long_tail_exponent * ranks / (self.num_classes - 1)
        return logits - np.log(np.exp(logits).sum())

    def train_labels(self, num_examples: int) -> np.ndarray:
        """The labels of the training examples, which follow π as closely as integers can.

        The first L examples are one of each class. Each further example goes to the class of
        largest π_y / (n_y + 1/2); n_y is the number that the class has (Sainte-Laguë's rule). So
        the counts depend only on the size, and a larger training part starts with the smaller one.
        """
        prior = np.exp(self.log_prior).tolist()
        labels = list(range(self.num_classes))
        counts = [1] * self.num_classes
        queue = [(1.5 / share, label) for label, share in enumerate(prior)]
        heapq.heapify(queue)
        while len(labels) < num_examples:
            _, label = queue[0]
            labels.append(label)
            counts[label] += 1
            heapq.heapreplace(queue, ((counts[label] + 0.5) / prior[label], label))
        return np.array(labels[:num_examples])

    def sample(self, part: str, num_examples: int) -> LatentExamples:
        """The first examples of "train", "validation", "test", "balanced_test" or "integration".

        An example depends only on the parameters, the part and its index. The training part
        has the labels of `train_labels`, and "balanced_test" every class in turn. The labels of the
        others are drawn independently from π. Latents are drawn independently given the labels.
        The Bayes accuracies are means over "integration".
        """
        if part == "train":
            labels = self.train_labels(num_examples)
        elif part == "balanced_test":
            labels = np.arange(num_examples) % self.num_classes
        else:
            labels = self._drawn_labels(part, num_examples)
        return LatentExamples(self.draw(part, labels), labels)

    def posterior(self, latents: np.ndarray) -> np.ndarray:
        """p(y | z) of latents [n, 16], float64 [n, L]."""
        logits = self._log_densities(latents.astype(np.float64)) + self.log_prior
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    @abc.abstractmethod
    def draw(self, part: str, labels: np.ndarray) -> np.ndarray:
        """The latents of the first examples of a part if these were their labels, [n, 16].

        Args:
            part: as for `sample`.
            labels: int64 [n].
        """

    @abc.abstractmethod
    def _log_densities(self, latents: np.ndarray) -> np.ndarray:
        """Log p(z | y) up to a function of z, of latents float64 [n, 16], float64 [n, L]."""

    def _drawn_labels(self, part: str, num_examples: int) -> np.ndarray:
        """Labels drawn independently from π, int64 [n]."""
        uniform = self._stream(part, "labels").random_sample(num_examples)
        borders = np.cumsum(np.exp(self.log_prior))[:-1]
        return np.searchsorted(borders, uniform, side="right")

    def _normals(self, stream: str, rows: int) -> np.ndarray:
        return self._stream(stream).standard_normal((rows, LATENT_SIZE))

    def _stream(self, name: str, purpose: str = "") -> np.random.RandomState:
        """A generator whose numbers are the same in every version of NumPy, as this kind is frozen.

        One version may draw the examples on disk, and another their distribution.
        """
        spawn_key = (_STREAMS.index(name), _PURPOSES.index(purpose))
        bits = np.random.MT19937(np.random.SeedSequence(self.seed, spawn_key=spawn_key))
        return np.random.RandomState(bits)


def check_integer(name: str, value: int, *, minimum: int, maximum: int | None = None) -> None:
    """Refuses an argument that is not an integer in its range."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < minimum or (maximum is not None and value > maximum):
        allowed = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise UserError(f"{name} of synthetic species must be an integer {allowed}, got {value!r}")


def check_number(name: str, value: float, *, minimum: float, maximum: float) -> None:
    """Refuses an argument that is not a number in its range."""
    if not isinstance(value, float | int) or not minimum <= value <= maximum:
        raise UserError(
            f"{name} of synthetic species must be a number from {minimum} to {maximum}, got "
            f"{value!r}"
        )
