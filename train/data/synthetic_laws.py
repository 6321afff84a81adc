"""Three laws of examples and classes whose posterior p(y | z) is known in closed form.

A class y is a species within a genus. An example is a latent z, a vector of 16 numbers. Everything
is drawn from a seed, so nobody needs a download to compare a loss with the best classifier.
"""

import abc
import functools
import heapq
import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

LATENT_SIZE = 16
# Two draws of standard deviation s in each coordinate of a latent are at the distance √(2 d) s, as
# a root mean square. With this standard deviation the distance is 1.
_DEVIATION = 1 / math.sqrt(2 * LATENT_SIZE)
# The root mean square distance of two genera in standard deviations of the noise.
_GENUS_DISTANCE = 5.5

# What is drawn with random streams of its own, one for each purpose. A new name goes to the end,
# because the place is part of the seed.
_STREAMS = (
    *("genera", "species", "ranks", "directions", "train", "validation", "test"),
    *("integration", "balanced_test", "scales"),
)
_PURPOSES = ("", "labels", "organs")


class LatentExamples(NamedTuple):
    """Latents float64 [n, 16] and labels int64 [n]."""

    latents: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Law(abc.ABC):
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

    # Whether each class has training examples.
    each_class_is_trained: ClassVar[bool] = True

    num_classes: int = 100
    num_genera: int = 20
    ambiguity: float = 0.8
    long_tail_exponent: float = 6.0
    seed: int = 0

    @functools.cached_property
    def genera(self) -> np.ndarray:
        """The genus of each class, int64 [L]."""
        return np.arange(self.num_classes) * self.num_genera // self.num_classes

    @functools.cached_property
    def class_names(self) -> list[str]:
        """Names such as "genus_07 species_03", in the order of the classes."""
        within = np.arange(self.num_classes) - np.searchsorted(self.genera, self.genera)
        pairs = zip(self.genera, within, strict=True)
        return [f"genus_{genus:02d} species_{species:02d}" for genus, species in pairs]

    @functools.cached_property
    def log_prior(self) -> np.ndarray:
        """Log π_y, float64 [L]."""
        ranks = self.stream("ranks").permutation(self.num_classes)
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

        An example depends only on the parameters, the part and its index. "balanced_test" has every
        class in turn. The labels of other parts but "train" are drawn independently from π, and
        latents independently given the labels. The tests integrate over "integration".
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

    def stream(self, name: str, purpose: str = "") -> np.random.RandomState:
        """A generator whose numbers are the same in every version of NumPy: this kind is frozen."""
        spawn_key = (_STREAMS.index(name), _PURPOSES.index(purpose))
        bits = np.random.MT19937(np.random.SeedSequence(self.seed, spawn_key=spawn_key))
        return np.random.RandomState(bits)

    @abc.abstractmethod
    def draw(self, part: str, labels: np.ndarray) -> np.ndarray:
        """The latents of the first examples of a part if these labels were theirs, [n, 16]."""

    @abc.abstractmethod
    def _log_densities(self, latents: np.ndarray) -> np.ndarray:
        """Log p(z | y) up to a function of z, of latents float64 [n, 16], float64 [n, L]."""

    def _drawn_labels(self, part: str, num_examples: int) -> np.ndarray:
        """Labels drawn independently from π, int64 [n]."""
        uniform = self.stream(part, "labels").random_sample(num_examples)
        borders = np.cumsum(np.exp(self.log_prior))[:-1]
        return np.searchsorted(borders, uniform, side="right")

    def _normals(self, stream: str, rows: int) -> np.ndarray:
        return self.stream(stream).standard_normal((rows, LATENT_SIZE))


@dataclass(frozen=True, kw_only=True)
class Gaussian(Law):
    """Species within genera; each species is a Gaussian z ~ N(μ_y, I), and μ_y is near its genus.

        p(y | z) = softmax_y(μ_y · z - |μ_y|² / 2 + log π_y).

    The root mean square distance of two species of a genus is 2 / ambiguity. Two equally frequent
    species at that distance are mistaken for each other at the rate Φ(-1 / ambiguity).

    At the default parameters the best accuracies are, in percent, with standard errors of at most
    0.07 (the tests compute them):

        k                        1      3      5     10
        top-k accuracy        78.5   95.7   98.4   99.6
        macro top-k accuracy  63.3   89.7   96.1   99.0
        average-k accuracy    79.0   98.1   99.5  100.0
    """

    @functools.cached_property
    def means(self) -> np.ndarray:
        """μ_y, float64 [L, 16], in standard deviations of the noise."""
        genera = self._normals("genera", self.num_genera) * (_GENUS_DISTANCE * _DEVIATION)
        species = self._normals("species", self.num_classes) * (2 / self.ambiguity * _DEVIATION)
        return genera[self.genera] + species

    @override
    def draw(self, part: str, labels: np.ndarray) -> np.ndarray:
        return self.means[labels] + self._normals(part, len(labels))

    @override
    def _log_densities(self, latents: np.ndarray) -> np.ndarray:
        # |z|² / 2 is the same for all classes.
        return latents @ self.means.T - (self.means**2).sum(axis=1) / 2


@dataclass(frozen=True, kw_only=True)
class Organs(Law):
    """Species whose photographs show one of two organs, a flower or a leaf, without a mark which.

    A species y has a mean μ_yo and a scale σ_yo for each organ o:

        z ~ 1/2 N(μ_y0, σ_y0² I) + 1/2 N(μ_y1, σ_y1² I),

        p(y | z) = softmax_y(log π_y + log Σ_o exp(-|z - μ_yo|² / 2 σ_yo² - 16 log σ_yo)).

    The leaves of a genus are much more alike than its flowers. The scales are drawn from the seed.
    So log p(y | z) is not linear in z, and no softmax of linear scores is p(y | z).

    With balanced classes and the other parameters at their defaults, the best accuracies are, in
    percent, with standard errors of at most 0.09 (the tests compute them):

        k                                          1      3      5     10
        top-k accuracy                          64.3   85.0   90.7   95.7
        average-k accuracy                      66.0   89.5   94.9   98.5
        top-k accuracy of linear scores         33.4   53.6   65.5   78.5
        average-k accuracy of linear scores     32.7   55.1   66.3   79.6

    Top-k accuracy is then macro top-k accuracy, too. The linear scores come from logistic
    regression on 100,000 examples; the standard errors of their accuracies are at most 0.16.
    """

    # The root mean square distances of flowers and of leaves in a genus, times the ambiguity.
    _SPECIES_DISTANCES = (3.2, 0.8)
    # A scale is between 1 / _SCALE_RANGE and _SCALE_RANGE; its logarithm is uniform.
    _SCALE_RANGE = 2.0

    @functools.cached_property
    def means(self) -> np.ndarray:
        """μ_yo of flowers and of leaves, float64 [2, L, 16]."""
        genera = self._normals("genera", 2 * self.num_genera).reshape(2, -1, LATENT_SIZE)
        species = self._normals("species", 2 * self.num_classes).reshape(2, -1, LATENT_SIZE)
        distances = np.reshape(self._SPECIES_DISTANCES, (2, 1, 1)) / self.ambiguity * _DEVIATION
        return genera[:, self.genera] * (_GENUS_DISTANCE * _DEVIATION) + species * distances

    @functools.cached_property
    def scales(self) -> np.ndarray:
        """σ_yo of flowers and of leaves, float64 [2, L]."""
        uniform = self.stream("scales").random_sample((2, self.num_classes))
        return self._SCALE_RANGE ** (2 * uniform - 1)

    def organs(self, part: str, num_examples: int) -> np.ndarray:
        """The organ that each example of a part shows, 0 for a flower, int64 [n]."""
        uniform = self.stream(part, "organs").random_sample(num_examples)
        return (uniform >= 0.5).astype(np.int64)

    @override
    def draw(self, part: str, labels: np.ndarray) -> np.ndarray:
        organs = self.organs(part, len(labels))
        noise = self._normals(part, len(labels))
        return self.means[organs, labels] + self.scales[organs, labels, np.newaxis] * noise

    @override
    def _log_densities(self, latents: np.ndarray) -> np.ndarray:
        # |z - μ|² = |z|² - 2 z · μ + |μ|² needs one matrix product instead of L differences. Its
        # rounding is of the order of 1e-16 |z|², which float64 affords.
        products = latents @ self.means.swapaxes(1, 2)
        squares = (latents**2).sum(axis=1)[:, np.newaxis]
        distances = squares - 2 * products + (self.means**2).sum(axis=2)[:, np.newaxis]
        scales = self.scales[:, np.newaxis]
        flowers, leaves = -distances / (2 * scales**2) - LATENT_SIZE * np.log(scales)
        return np.logaddexp(flowers, leaves)


@dataclass(frozen=True, kw_only=True)
class PowerLaw(Law):
    """Very many species, of which a few have most examples; species of a genus look alike.

    A genus g has a mean μ_g, and a width c_g from 1 to 30. The species of rank r = 0, 1, … has a
    share of its genus in proportion to (r + c_g)^-s, where s is `long_tail_exponent`. All genera
    are equally frequent, and their distances are in proportion to 1 / ambiguity. A latent is
    z ~ N(μ_g, I), so

        p(y | z) = p(y | g) softmax_g(μ_g · z - |μ_g|² / 2).

    Narrow genera have a few frequent species and wide genera have many. So sets of K species on
    average should be larger if z comes from a wide genus. With s = 3, nine tenths of the examples
    of a genus are of its 2 c_g most frequent species, for any number of species.
    """

    each_class_is_trained: ClassVar[bool] = False
    # The root mean square distance of two genera, times the ambiguity.
    _DISTANCE = 4.0
    # The largest width; the logarithm of a width is uniform.
    _MOST_WIDTH = 30.0

    @functools.cached_property
    def means(self) -> np.ndarray:
        """μ_g, float64 [genera, 16]."""
        distance = self._DISTANCE / self.ambiguity * _DEVIATION
        return self._normals("genera", self.num_genera) * distance

    @functools.cached_property
    def widths(self) -> np.ndarray:
        """c_g, float64 [genera]."""
        uniform = self.stream("scales").random_sample(self.num_genera)
        return self._MOST_WIDTH**uniform

    @functools.cached_property
    @override
    def log_prior(self) -> np.ndarray:
        """Log π_y, float64 [L]; the ranks of the species are drawn from the seed."""
        first_of_genus = np.searchsorted(self.genera, np.arange(self.num_genera))
        order = np.lexsort((self.stream("ranks").permutation(self.num_classes), self.genera))
        ranks = np.empty(self.num_classes, np.int64)
        # The species of a genus are neighbours.
        ranks[order] = np.arange(self.num_classes) - first_of_genus[self.genera]
        shares = (ranks + self.widths[self.genera]) ** -float(self.long_tail_exponent)
        sums = np.add.reduceat(shares, first_of_genus)
        return np.log(shares / sums[self.genera]) - math.log(self.num_genera)

    @override
    def train_labels(self, num_examples: int) -> np.ndarray:
        """The labels of the training examples, drawn independently from π as all others are."""
        return self._drawn_labels("train", num_examples)

    @override
    def draw(self, part: str, labels: np.ndarray) -> np.ndarray:
        return self.means[self.genera[labels]] + self._normals(part, len(labels))

    @override
    def _log_densities(self, latents: np.ndarray) -> np.ndarray:
        # |z|² / 2 is the same for all classes.
        of_genera = latents @ self.means.T - (self.means**2).sum(axis=1) / 2
        return of_genera[:, self.genera]
