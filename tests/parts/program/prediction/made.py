"""A classifier that was made up, whose probabilities have a second path."""

import dataclasses

import jax
import numpy as np

from train.data import taxonomy
from train.data.classes import Classes
from train.data.crops import ImageReader

NAMES = ("Acer rubrum", "Acer saccharum", "Betula nigra", "Quercus alba", "Quercus rubra")


@dataclasses.dataclass
class Fake:
    """A classifier whose logits are a fixed matrix times the input."""

    inputs: str = "images"
    own_rule = None
    title = what = "fake"
    classes = Classes(NAMES, (1,) * 5, taxonomy.first_words(NAMES))
    traced: list = dataclasses.field(default_factory=list)

    @property
    def shape(self):
        return (8, 8, 1) if self.inputs == "images" else (3,)

    @property
    def reader(self):
        return ImageReader.plain(self.shape) if self.inputs == "images" else None

    @property
    def weights(self):
        scale = 8 / np.prod(self.shape) / (255 if self.inputs == "images" else 1)
        return scale * np.random.default_rng(5).normal(size=(np.prod(self.shape), 5))

    def scores(self):
        def scores(batch):
            self.traced.append(batch.shape)
            return jax.nn.softmax(
                batch.reshape(len(batch), -1).astype(np.float32) @ self.weights.astype(np.float32)
            )

        return scores

    def probabilities(self, examples):
        """A second path, in 64 bits."""
        logits = np.stack(examples).reshape(len(examples), -1).astype(np.float64) @ self.weights
        found = np.exp(logits - logits.max(axis=1, keepdims=True))
        return found / found.sum(axis=1, keepdims=True)
