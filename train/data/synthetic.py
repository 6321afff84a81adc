"""Synthetic data sets: latents of a law as features, or as images, drawn from a seed in memory.

The laws are in `train.data.synthetic_laws`. Validation and test examples follow the law, and the
classes of the balanced test are equally frequent. The best classifier is known.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from train.configuration.datasets import LatentsFields, SpeciesFields
from train.data import splits, taxonomy
from train.data.dataset import Dataset, DatasetFamily, DatasetSpec, TrueDistribution
from train.data.examples import Examples
from train.data.synthetic_laws import LATENT_SIZE, Gaussian, Law, Organs, PowerLaw
from train.foundation.errors import UserError

# The laws by the name that `config.dataset.generator` has for them.
LAWS: Mapping[str, type[Law]] = {"gaussian": Gaussian, "organs": Organs, "power_law": PowerLaw}

_IMAGE_SHAPE = (32, 32, 3)
# The most periods that a pattern has across an image: patterns are smooth.
_MAX_FREQUENCY = 2
# The range of grey levels on either side of the middle, in standard deviations of the pixel that
# varies most.
_PIXEL_RANGE = 3.5
# The least distance from the mean of any class to the end of that range, in standard deviations of
# the noise. A rare class may be many standard deviations of the mixture from the middle.
_CLASS_MARGIN = 1.0
# The images that are rendered at a time.
_CHUNK_SIZE = 4096


class Rendering:
    """Images of 32 by 32 pixels, an affine function of the latents, rounded to eight bits.

    The directions of the latents are orthonormal patterns. Rounding changes the z that is recovered
    from an image by 0.13 % of the noise (root mean square, at the default parameters). The best
    classifier of z is an upper bound for every classifier of the image, and nearly attained.

    Attributes:
        std: the standard deviation of each channel over all images, in [0, 1]. The mean is 0.5.
    """

    def __init__(self, law: Gaussian) -> None:
        prior = np.exp(law.log_prior)
        # E[z] is shown as middle grey.
        self._center = prior @ law.means
        self._directions = _directions(law.stream("directions"))
        offsets = law.means - self._center
        covariance = np.eye(LATENT_SIZE) + (offsets.T * prior) @ offsets
        # The variance of each pixel if a unit of the latent is one grey level.
        variances = ((self._directions @ covariance) * self._directions).sum(axis=1)
        distances = abs(self._directions @ offsets.T).max(axis=1)
        noise = np.sqrt((self._directions**2).sum(axis=1))
        farthest = float((distances + _CLASS_MARGIN * noise).max())
        # The number of grey levels per unit of the latent.
        self._scale = 127.5 / max(_PIXEL_RANGE * math.sqrt(variances.max()), farthest)
        of_channels = np.sqrt(variances.reshape(-1, _IMAGE_SHAPE[2]).mean(axis=0))
        self.std: tuple[float, ...] = tuple((of_channels * (self._scale / 255)).tolist())

    def images(self, latents: np.ndarray) -> np.ndarray:
        """The images of latents [n, 16], uint8 [n, 32, 32, 3]."""
        images = np.empty((len(latents), math.prod(_IMAGE_SHAPE)), np.uint8)
        for start in range(0, len(latents), _CHUNK_SIZE):
            chunk = slice(start, start + _CHUNK_SIZE)
            offsets = latents[chunk] - self._center
            pixels = 127.5 + offsets @ (self._directions * self._scale).T
            images[chunk] = np.clip(np.rint(pixels), 0, 255)
        return images.reshape(-1, *_IMAGE_SHAPE)

    def latents(self, images: np.ndarray) -> np.ndarray:
        """The latents of images [n, 32, 32, 3], up to rounding, float64 [n, 16]."""
        pixels = images.reshape(len(images), -1).astype(np.float32)
        # Projected in float32, whose error is a thousandth of the rounding's.
        directions = self._directions.astype(np.float32)
        return ((pixels - np.float32(127.5)) @ directions) / self._scale + self._center


def _directions(random: np.random.RandomState) -> np.ndarray:
    """The pattern of each latent coordinate, orthonormal, float64 [32 · 32 · 3, 16]."""
    height, width, channels = _IMAGE_SHAPE
    waves = np.kron(np.kron(_waves(height), _waves(width)), np.eye(channels))
    orthonormal, triangle = np.linalg.qr(random.standard_normal((waves.shape[1], LATENT_SIZE)))
    # The factorisation is unique once its signs are fixed, on any machine.
    return waves @ (orthonormal * np.sign(np.diag(triangle)))


def _waves(size: int) -> np.ndarray:
    """Sines and cosines of few periods, orthonormal [size, 2 · _MAX_FREQUENCY + 1]."""
    phases = 2 * math.pi * np.arange(size) / size
    waves = [np.full(size, math.sqrt(0.5))]
    for frequency in range(1, _MAX_FREQUENCY + 1):
        waves += [np.cos(frequency * phases), np.sin(frequency * phases)]
    return np.stack(waves, axis=1) * math.sqrt(2 / size)


@dataclass(frozen=True, kw_only=True)
class SyntheticSpec(DatasetSpec):
    """Examples of a law.

    Attributes:
        law: the classes, and the latents of each.
        sizes: the number of examples of "train", "validation", "test" and "balanced_test"; 0 of the
            last for no such test.
        rendering: makes images of the latents; `None` if the examples are the latents.
    """

    image_shape: tuple[int, ...]
    law: Law
    sizes: Mapping[str, int]
    rendering: Rendering | None = None

    def load(self, data_dir: str | None) -> Dataset:
        """Draws the examples; see `DatasetSpec`."""
        del data_dir  # There are no files.
        parts = {part: self._split(part, size) for part, size in self.sizes.items() if size}
        rows = None if self.has_images else parts["train"].array
        return Dataset(
            train=parts["train"],
            validation=parts["validation"],
            test=parts["test"],
            balanced_test=parts.get("balanced_test"),
            class_names=tuple(self.law.class_names),
            tree=taxonomy.first_words(self.law.class_names),
            image_shape=self.image_shape,
            mean=None if rows is None else tuple(rows.mean(axis=0, dtype=np.float64).tolist()),
            std=None if rows is None else tuple(rows.std(axis=0, dtype=np.float64).tolist()),
        )

    def _split(self, part: str, size: int) -> Examples:
        latents, labels = self.law.sample(part, size)
        inputs = latents.astype(np.float32)
        if self.rendering is not None:
            order = splits.shuffled(part, np.arange(size))
            inputs, labels = self.rendering.images(latents[order]), labels[order]
        return Examples.of_source(inputs, labels, self.law.class_names, f"{part} of {self.name}")


def _latents(fields: LatentsFields) -> DatasetSpec:
    spec = _spec(fields, LAWS[fields.generator])
    balanced = fields.balanced_per_class * fields.num_classes
    return dataclasses.replace(spec, sizes={**spec.sizes, "balanced_test": balanced})


def _species(fields: SpeciesFields) -> DatasetSpec:
    """The latents of the Gaussian law as images."""
    spec = _spec(fields, Gaussian)
    assert isinstance(spec.law, Gaussian)
    law, rendering = spec.law, Rendering(spec.law)
    return dataclasses.replace(
        spec,
        inputs="images",
        image_shape=_IMAGE_SHAPE,
        mean=(0.5,) * _IMAGE_SHAPE[2],
        std=rendering.std,
        rendering=rendering,
        true_distribution=TrueDistribution(
            lambda images: law.posterior(rendering.latents(images)), np.exp(law.log_prior)
        ),
    )


def _spec(fields: SpeciesFields, kind: type[Law]) -> SyntheticSpec:
    """The latents of a law.

    Raises:
        UserError: there are more genera than classes, or too few training examples.
    """
    if fields.num_genera > fields.num_classes:
        raise UserError(
            field="config.dataset.num_genera",
            must_be=f"at most the {fields.num_classes} classes",
            got=fields.num_genera,
        )
    if kind.each_class_is_trained and fields.num_train < fields.num_classes:
        raise UserError(
            field="config.dataset.num_train",
            must_be=f"at least {fields.num_classes}, one example of each class",
            got=fields.num_train,
        )
    law = kind(
        num_classes=fields.num_classes,
        num_genera=fields.num_genera,
        ambiguity=fields.ambiguity,
        long_tail_exponent=fields.long_tail_exponent,
        seed=fields.data_seed,
    )
    return SyntheticSpec(
        name=fields.name,
        num_classes=fields.num_classes,
        image_shape=(LATENT_SIZE,),
        # Not augmented: a shifted or flipped image would follow another distribution.
        attribution="drawn from a model by topk_jax, without data of others",
        mean=(),
        std=(),
        inputs="features",
        true_distribution=TrueDistribution(law.posterior, np.exp(law.log_prior)),
        law=law,
        sizes={
            "train": fields.num_train,
            "validation": fields.num_validation,
            "test": fields.num_test,
        },
    )


SYNTHETIC_SPECIES = DatasetFamily(_species, fields=SpeciesFields)
SYNTHETIC_LATENTS = DatasetFamily(_latents, fields=LatentsFields)
