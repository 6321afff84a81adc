"""A distribution of `synthetic_latents` for very many species; a few have most examples.

A genus g has a mean μ_g, and a width c_g of at least 1. Its species look alike, and are more or
less frequent: the species of rank r = 0, 1, … has a share of its genus in proportion to
(r + c_g)^-s, where s is the exponent of the long tail. All genera are equally frequent. A latent is
z ~ N(μ_g, I), so

    p(y | z) = p(y | g) softmax_g(μ_g · z - |μ_g|² / 2).

Narrow genera, with a small width, have a few frequent species and wide genera have many. So sets of
K species on average should be larger if z comes from a wide genus. With s = 3, nine
tenths of the examples of a genus are of its 2 c_g most frequent species, for any number of species.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from train.data.latent_species import DEVIATION, LatentSpecies, check_number

# The root mean square distance of two genera, times the ambiguity.
GENUS_DISTANCE = 4.0
# The largest width; the logarithm of a width is uniform.
MOST_WIDTH = 30.0


@dataclass(frozen=True, kw_only=True)
class PowerLawModel(LatentSpecies):
    """Genera that are Gaussians; the species of a genus differ only in their frequencies.

    `ambiguity` is how similar the genera are. `long_tail_exponent` is s.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        # The least frequent of 10^9 species still has a probability in float64.
        check_number("long_tail_exponent", self.long_tail_exponent, minimum=0, maximum=10)

    @property
    @override
    def fewest_training_examples(self) -> int:
        """One: most of the species may have no training example."""
        return 1

    @functools.cached_property
    def means(self) -> np.ndarray:
        """μ_g, float64 [genera, 16]."""
        distance = GENUS_DISTANCE / self.ambiguity * DEVIATION
        return self._normals("genera", self.num_genera) * distance

    @functools.cached_property
    def widths(self) -> np.ndarray:
        """c_g, float64 [genera]."""
        uniform = self._stream("scales").random_sample(self.num_genera)
        return MOST_WIDTH**uniform

    @functools.cached_property
    def ranks(self) -> np.ndarray:
        """The rank of each species in its genus, which is drawn from the seed, int64 [L]."""
        order = np.lexsort((self._stream("ranks").permutation(self.num_classes), self.genera))
        ranks = np.empty(self.num_classes, np.int64)
        # The species of a genus are neighbours.
        ranks[order] = np.arange(self.num_classes) - self._first_of_genus[self.genera]
        return ranks

    @functools.cached_property
    @override
    def log_prior(self) -> np.ndarray:
        """Log π_y, float64 [L]."""
        shares = (self.ranks + self.widths[self.genera]) ** -float(self.long_tail_exponent)
        sums = np.add.reduceat(shares, self._first_of_genus)
        return np.log(shares / sums[self.genera]) - math.log(self.num_genera)

    @override
    def train_labels(self, num_examples: int) -> np.ndarray:
        """The labels of the training examples, drawn independently from π as all others are."""
        return self._drawn_labels("train", num_examples)

    @override
    def draw(self, part: str, labels: np.ndarray) -> np.ndarray:
        """The latents of examples; see `LatentSpecies`."""
        return self.means[self.genera[labels]] + self._normals(part, len(labels))

    @override
    def _log_densities(self, latents: np.ndarray) -> np.ndarray:
        # |z|² / 2 is the same for all classes.
        of_genera = latents @ self.means.T - (self.means**2).sum(axis=1) / 2
        return of_genera[:, self.genera]

    @functools.cached_property
    def _first_of_genus(self) -> np.ndarray:
        """The first species of each genus, int64 [genera]."""
        return np.searchsorted(self.genera, np.arange(self.num_genera))
