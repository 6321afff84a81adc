"""A network for images: features, then a head."""

import jax
from flax import linen as nn

from train.models.feature_norm import FeatureNorm
from train.models.heads import TwoLogits
from train.models.layers import mean_over_image


class Classifier(nn.Module):
    """Features followed by a head.

    Attributes:
        features: the network below the head.
        head: features to logits.
        freeze: whether the network below the head evaluates in training too, so that its batch norm
            uses the running statistics and does not update them.
        norm: what normalizes the features below the head; None for features as they are.
    """

    features: nn.Module
    head: nn.Module
    freeze: bool = False
    norm: FeatureNorm | None = None

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array | TwoLogits:
        """Normalised images [n, height, width, channels] to logits [n, L], or a `TwoLogits`.

        With `train`, batch norm uses the statistics of the batch over all devices and updates the
        collection `batch_stats`; otherwise it uses the running statistics.
        """
        features = self.features(images, train=train and not self.freeze)
        if self.norm is not None:
            features = self.norm(features)
        if features.ndim == 2:
            return self.head(features)
        # A head at every place of the image, as SqueezeNet has it.
        of_places = self.head(features)
        return jax.tree.map(lambda logits: mean_over_image(nn.relu(logits)), of_places)

    def features_in_evaluation(self, images: jax.Array) -> jax.Array:
        """Normalised images [n, height, width, channels] to what the norm of features gets."""
        features: jax.Array = self.features(images, train=False)
        return features

    def embed(self, images: jax.Array) -> jax.Array:
        """Normalised images [n, height, width, channels] to features [n, d], in evaluation."""
        features = self.features_in_evaluation(images)
        return features if features.ndim == 2 else mean_over_image(features)
