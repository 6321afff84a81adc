"""The features of a frozen network, normalized below its new head by constant numbers.

The features of one network can be a hundred times as large as the features of another network, and
features of one network can differ as much from each other. The larger the mean squared length of
the features, the smaller the largest rate at which SGD on a linear head is stable. With a mean of
0, equal deviations and a mean squared length that is the same for every network, one rate fits all
of them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

# The mean squared length of normalized features, whatever their number; 100 features of variance 1
# have it. With it, the rates of the recipes for networks fit heads too.
_SQUARED_LENGTH = 100.0
# In units of the root mean square of all deviations: smaller ones count as this one. The next image
# could have a feature that is almost always 0.
_SMALLEST_DEVIATION = 0.01


class FeatureNorm(nn.Module):
    """Features minus a mean, divided by a scale: 0 and 1, until `measure` gives others.

    The numbers are in the collection of batch norm's statistics, which travels with the parameters
    of the network, and no step changes them.
    """

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Features [..., d] to normalized features [..., d]."""
        shape = (features.shape[-1],)
        mean = self.variable("batch_stats", "mean", jnp.zeros, shape, jnp.float32).value
        scale = self.variable("batch_stats", "scale", jnp.ones, shape, jnp.float32).value
        broadcast = (1,) * (features.ndim - 1) + shape
        return (features - mean.reshape(broadcast)) / scale.reshape(broadcast)


def measure(batches: Iterable[np.ndarray]) -> dict[str, np.ndarray] | None:
    """The variables of a `FeatureNorm` for the features in some batches; None without features.

    Args:
        batches: features [..., d].
    """
    count = 0
    origin = total = squares = np.zeros(1)
    for batch in batches:
        features = batch.reshape(-1, batch.shape[-1]).astype(np.float64)
        if not count and len(features):
            # Differences to one of them: a feature that is always the same has a deviation of 0.
            origin = features[0].copy()
        features -= origin
        count += len(features)
        total = total + features.sum(axis=0)
        squares = squares + np.square(features).sum(axis=0)
    if not count:
        return None
    difference = total / count
    deviation = np.sqrt(np.maximum(squares / count - difference**2, 0))
    return {
        "mean": (origin + difference).astype(np.float32),
        "scale": _scale(deviation).astype(np.float32),
    }


def _scale(deviation: np.ndarray) -> np.ndarray:
    """The divisors [d] of features with these standard deviations [d]."""
    mean_square = np.square(deviation).mean()
    if mean_square == 0:
        return np.ones_like(deviation)
    divisor = np.maximum(deviation, _SMALLEST_DEVIATION * np.sqrt(mean_square))
    scale: np.ndarray = divisor * np.sqrt(np.square(deviation / divisor).sum() / _SQUARED_LENGTH)
    return scale


def folded(head: Mapping[str, Any], norm: Mapping[str, Any]) -> dict[str, Any]:
    """The layers of an affine head that gives the same logits without the normalization.

    Args:
        head: the parameters of the head, by the names of its layers.
        norm: the variables of the `FeatureNorm` below it.
    """
    mean, scale = (np.asarray(norm[name], np.float64) for name in ("mean", "scale"))

    def of_layer(layer: Mapping[str, Any]) -> dict[str, Any]:
        kernel = np.asarray(layer["kernel"], np.float64) / scale[:, None]
        bias = np.asarray(layer["bias"], np.float64) - mean @ kernel
        return {"kernel": kernel.astype(np.float32), "bias": bias.astype(np.float32)}

    return {name: of_layer(layer) for name, layer in head.items()}
