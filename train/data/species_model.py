"""The distribution of `synthetic_species`, and the accuracies of the best classifier.

A class y, a species, has the prior probability π_y and a mean μ_y near the mean of its genus. An
example is a latent z ~ N(μ_y, I) of 16 numbers, rendered as an image of 32 by 32 pixels. So

    p(y | z) = softmax_y(μ_y · z - |μ_y|² / 2 + log π_y).

The image is an affine function of z with orthonormal directions, rounded to eight bits. Rounding
changes the z that is recovered from the image by 0.13 % of the noise (root mean square, at the
default parameters). The Bayes accuracies below belong to a classifier that sees z itself: an
upper bound for every classifier of the image, and nearly attained.

At the default parameters they are, in percent, with standard errors of at most 0.07 (the tests
compute them):

    k                        1      3      5     10
    top-k accuracy        78.5   95.7   98.4   99.6
    macro top-k accuracy  63.3   89.7   96.1   99.0
    average-k accuracy    79.0   98.1   99.5  100.0
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from train.data.latent_species import DEVIATION, LATENT_SIZE, LatentSpecies

IMAGE_SHAPE = (32, 32, 3)
# The root mean square distance of two genera in standard deviations of the noise: they overlap a
# little.
GENUS_DISTANCE = 5.5
# The most periods that a pattern has across an image: patterns are smooth.
MAX_FREQUENCY = 2
# The range of grey levels on either side of the middle, in standard deviations of the pixel that
# varies most.
PIXEL_RANGE = 3.5
# The least distance from the mean of any class to the end of that range, in standard deviations of
# the noise. A rare class may be many standard deviations of the mixture from the middle.
CLASS_MARGIN = 1.0
# The number of examples that are rendered at a time.
CHUNK_SIZE = 4096


@dataclass(frozen=True, kw_only=True)
class SpeciesModel(LatentSpecies):
    """Species within genera; each species is a Gaussian.

    `ambiguity` is how similar the species of a genus are: their root mean square distance is
    2 / ambiguity standard deviations of the noise. Two equally frequent species at that distance
    are mistaken for each other at the rate Φ(-1 / ambiguity).
    """

    @functools.cached_property
    def means(self) -> np.ndarray:
        """μ_y, float64 [L, 16], in standard deviations of the noise."""
        genera = self._normals("genera", self.num_genera) * (GENUS_DISTANCE * DEVIATION)
        species = self._normals("species", self.num_classes) * (2 / self.ambiguity * DEVIATION)
        return genera[self.genera] + species

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
        """The variance of each pixel if a unit of the latent is one grey level."""
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

    def draw(self, part: str, labels: np.ndarray) -> np.ndarray:
        """The latents of examples; see `LatentSpecies`."""
        return self.means[labels] + self._normals(part, len(labels))

    def _log_densities(self, latents: np.ndarray) -> np.ndarray:
        # |z|² / 2 is the same for all classes.
        return latents @ self.means.T - (self.means**2).sum(axis=1) / 2


def _waves(size: int) -> np.ndarray:
    """Sines and cosines of up to `MAX_FREQUENCY` periods, orthonormal [size, 2 · frequency + 1]."""
    phases = 2 * math.pi * np.arange(size) / size
    waves = [np.full(size, math.sqrt(0.5))]
    for frequency in range(1, MAX_FREQUENCY + 1):
        waves += [np.cos(frequency * phases), np.sin(frequency * phases)]
    return np.stack(waves, axis=1) * math.sqrt(2 / size)
