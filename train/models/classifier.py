"""A network for images: features, then a head."""

import jax
from flax import linen as nn

from train.models.heads import TwoLogits


class Classifier(nn.Module):
    """Features followed by a head.

    Attributes:
        features: the network below the head.
        head: features to logits.
        freeze: whether the network below the head evaluates in training too, so that its batch norm
            uses the running statistics and does not update them.
    """

    features: nn.Module
    head: nn.Module
    freeze: bool = False

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array | TwoLogits:
        """Normalised images [n, height, width, channels] to logits [n, L], or a `TwoLogits`.

        With `train`, batch norm uses the statistics of the batch over all devices and updates the
        collection `batch_stats`; otherwise it uses the running statistics.
        """
        return self.head(self.features(images, train=train and not self.freeze))

    def embed(self, images: jax.Array) -> jax.Array:
        """Normalised images [n, height, width, channels] to features [n, d], in evaluation."""
        return self.features(images, train=False)
