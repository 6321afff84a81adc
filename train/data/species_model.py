"""The distribution of `synthetic_species`, and the accuracies of the best classifier.

A class y, a species, has the prior probability π_y and a mean μ_y near that of its genus. An
example is a latent z ~ N(μ_y, I) of 16 numbers, rendered as an image of 32 by 32 pixels. So

    p(y | z) = softmax_y(μ_y · z - |μ_y|² / 2 + log π_y).

The image is an affine function of z with orthonormal directions, rounded to eight bits. Rounding
changes the z that is recovered from the image by 0.13 % of the noise (root mean square, at the
default parameters). The Bayes accuracies below are those of a classifier that sees z itself: an
upper bound for every classifier of the image, and nearly attained.

At the default parameters they are, in percent, with standard errors of at most 0.07 (the tests
compute them):

    k                        1      3      5     10
    top-k accuracy        78.5   95.7   98.4   99.6
    macro top-k accuracy  63.3   89.7   96.1   99.0
    average-k accuracy    79.0   98.1   99.5  100.0
"""

import functools
import heapq
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from train.foundation.errors import UserError

IMAGE_SHAPE = (32, 32, 3)
LATENT_SIZE = 16
# The root mean square distance of two genera in standard deviations of the noise: they overlap a
# little.
GENUS_DISTANCE = 5.5
# The most periods that a pattern has across an image: patterns are smooth.
MAX_FREQUENCY = 2
# The range of grey levels on either side of the middle, in standard deviations of the pixel that
# varies most.
PIXEL_RANGE = 3.5
# The least distance from the mean of any class to the end of that range, in standard deviations of
# the noise. A rare class may lie many standard deviations of the mixture from the middle.
CLASS_MARGIN = 1.0
# The number of examples that are rendered at a time.
CHUNK_SIZE = 4096

# Each of these is drawn from the seed with a random stream of its own.
_STREAMS = (
    "genera",
    "species",
    "ranks",
    "directions",
    "train",
    "validation",
    "test",
    "integration",
)


class Examples(NamedTuple):
    """Latents float64 [n, 16] and labels int64 [n]."""

    latents: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True, kw_only=True)
class SpeciesModel:
    """Species within genera; each species is a Gaussian.

    Attributes:
        num_classes: the number of species L. Their numbers in two genera differ by at most one.
        num_genera: the number of genera.
        ambiguity: how similar the species of a genus are. Their root mean square distance is
            2 / ambiguity standard deviations of the noise. Two equally frequent species at that
            distance are mistaken for each other at the rate Φ(-1 / ambiguity).
        long_tail_exponent: the prior falls geometrically from the most to the least frequent
            species, by the factor exp(-long_tail_exponent) in all; 0 is balanced. The frequency of
            a species is drawn from the seed, independently of its genus.
        seed: the seed of the means, the ranks, the patterns and all examples.
    """

    num_classes: int = 100
    num_genera: int = 20
    ambiguity: float = 0.8
    long_tail_exponent: float = 6.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole_number("num_classes", self.num_classes, minimum=2)
        check_whole_number("num_genera", self.num_genera, minimum=1, maximum=self.num_classes)
        # Below, eight bits no longer resolve the noise.
        _check_number("ambiguity", self.ambiguity, minimum=0.01, maximum=100)
        _check_number("long_tail_exponent", self.long_tail_exponent, minimum=0, maximum=100)
        check_whole_number("seed", self.seed, minimum=0, maximum=2**32 - 1)

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
        ranks = self._stream("ranks").permutation(self.num_classes)
        logits = -self.long_tail_exponent * ranks / (self.num_classes - 1)
        return logits - np.log(np.exp(logits).sum())

    @functools.cached_property
    def means(self) -> np.ndarray:
        """μ_y, float64 [L, 16], in standard deviations of the noise."""
        # Two draws of standard deviation s in each of d coordinates are at the distance √(2 d) s.
        one = 1 / math.sqrt(2 * LATENT_SIZE)
        genera = self._normals("genera", self.num_genera) * (GENUS_DISTANCE * one)
        species = self._normals("species", self.num_classes) * (2 / self.ambiguity * one)
        return genera[self.genera] + species

    def train_labels(self, num_examples: int) -> np.ndarray:
        """The labels of the training examples, which follow π as closely as whole numbers can.

        The first L examples are one of each class. Each further example goes to the class of
        largest π_y / (n_y + 1/2), where n_y is the number that the class has (Sainte-Laguë's rule).
        So the counts are functions of the size alone, and a larger training part begins with the
        smaller one.
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

    def sample(self, part: str, num_examples: int) -> Examples:
        """The first examples of "train", "validation", "test" or "integration".

        An example is a function of the parameters, the part and its index alone. Labels are drawn
        independently from π, except those of the training part, which are `train_labels`. Latents
        are drawn independently given the labels. The Bayes accuracies are means over "integration".
        """
        if part == "train":
            labels = self.train_labels(num_examples)
        else:
            uniform = self._stream(part, "labels").random_sample(num_examples)
            borders = np.cumsum(np.exp(self.log_prior))[:-1]
            labels = np.searchsorted(borders, uniform, side="right")
        return Examples(self.means[labels] + self._normals(part, num_examples), labels)

    def render(self, latents: np.ndarray) -> np.ndarray:
        """The images of latents [n, 16], uint8 [n, 32, 32, 3]."""
        pixels = 127.5 + (latents - self._center) @ (self._directions * self._scale).T
        return np.clip(np.rint(pixels), 0, 255).astype(np.uint8).reshape(-1, *IMAGE_SHAPE)

    def latents(self, images: np.ndarray) -> np.ndarray:
        """The latents of images [n, 32, 32, 3], up to rounding, float64 [n, 16]."""
        pixels = images.reshape(len(images), -1).astype(np.float32)
        # Projected in float32, whose error is a thousandth of the rounding's.
        directions = self._directions.astype(np.float32)
        return ((pixels - np.float32(127.5)) @ directions) / self._scale + self._center

    @property
    def channel_mean(self) -> tuple[float, ...]:
        """The mean of each channel over all images, in [0, 1]."""
        return (0.5,) * IMAGE_SHAPE[2]

    @property
    def channel_std(self) -> tuple[float, ...]:
        """The standard deviation of each channel over all images, in [0, 1]."""
        variances = self._pixel_variances.reshape(-1, IMAGE_SHAPE[2]).mean(axis=0)
        return tuple((np.sqrt(variances) * (self._scale / 255)).tolist())

    def posterior(self, latents: np.ndarray) -> np.ndarray:
        """p(y | z) of latents [n, 16], float64 [n, L]."""
        logits = latents @ self.means.T + (self.log_prior - (self.means**2).sum(axis=1) / 2)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def bayes_probabilities(self, images: np.ndarray) -> np.ndarray:
        """The posterior at the latents of images [n, 32, 32, 3], float64 [n, L]."""
        return self.posterior(self.latents(images))

    @functools.cached_property
    def _directions(self) -> np.ndarray:
        """The pattern of each latent coordinate, orthonormal, float64 [32 · 32 · 3, 16]."""
        height, width, channels = IMAGE_SHAPE
        waves = np.kron(np.kron(_waves(height), _waves(width)), np.eye(channels))
        mixture = self._stream("directions").standard_normal((waves.shape[1], LATENT_SIZE))
        orthonormal, triangle = np.linalg.qr(mixture)
        # The factorisation is unique once its signs are fixed, on any machine.
        return waves @ (orthonormal * np.sign(np.diag(triangle)))

    @functools.cached_property
    def _center(self) -> np.ndarray:
        """E[z], float64 [16], shown as middle grey."""
        return np.exp(self.log_prior) @ self.means

    @functools.cached_property
    def _pixel_variances(self) -> np.ndarray:
        """The variance of each pixel where a unit of the latent is one grey level."""
        offsets = self.means - self._center
        covariance = np.eye(LATENT_SIZE) + (offsets.T * np.exp(self.log_prior)) @ offsets
        return ((self._directions @ covariance) * self._directions).sum(axis=1)

    @functools.cached_property
    def _scale(self) -> float:
        """The number of grey levels per unit of the latent."""
        offsets = abs(self._directions @ (self.means - self._center).T).max(axis=1)
        noise = np.sqrt((self._directions**2).sum(axis=1))
        farthest = float((offsets + CLASS_MARGIN * noise).max())
        return 127.5 / max(PIXEL_RANGE * math.sqrt(self._pixel_variances.max()), farthest)

    def _normals(self, stream: str, rows: int) -> np.ndarray:
        return self._stream(stream).standard_normal((rows, LATENT_SIZE))

    def _stream(self, name: str, purpose: str = "") -> np.random.RandomState:
        """A generator whose numbers are the same in every version of NumPy, as this kind is frozen.

        One version may draw the examples on disk, and another their distribution.
        """
        spawn_key = (_STREAMS.index(name), 1 if purpose else 0)
        bits = np.random.MT19937(np.random.SeedSequence(self.seed, spawn_key=spawn_key))
        return np.random.RandomState(bits)


def check_whole_number(name: str, value: int, *, minimum: int, maximum: int | None = None) -> None:
    """Refuses an argument that is not an integer in its range."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < minimum or (maximum is not None and value > maximum):
        allowed = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise UserError(f"{name} of synthetic_species must be an integer {allowed}, got {value!r}")


def _check_number(name: str, value: float, *, minimum: float, maximum: float) -> None:
    if not isinstance(value, float | int) or not minimum <= value <= maximum:
        raise UserError(
            f"{name} of synthetic_species must be a number from {minimum} to {maximum}, got "
            f"{value!r}"
        )


def _waves(size: int) -> np.ndarray:
    """Sines and cosines of up to `MAX_FREQUENCY` periods, orthonormal [size, 2 · frequency + 1]."""
    phases = 2 * math.pi * np.arange(size) / size
    waves = [np.full(size, math.sqrt(0.5))]
    for frequency in range(1, MAX_FREQUENCY + 1):
        waves += [np.cos(frequency * phases), np.sin(frequency * phases)]
    return np.stack(waves, axis=1) * math.sqrt(2 / size)
