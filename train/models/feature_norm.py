"""The features of a frozen network, normalized below its new head by constant numbers.

The features of one network can be a hundred times as large as those of another one. The larger
their mean squared length, the smaller the largest rate at which SGD on a linear head is stable.
With a mean of 0, equal deviations and one mean squared length, one rate fits all networks. The
numbers are constants, not statistics of batches: a head that is taken over from another run, and is
not normalized, keeps its classifier.
"""

from collections.abc import Mapping
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
    """Features minus a mean, divided by a scale: 0 and 1, until `measure` gives others."""

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Features [..., d] to normalized features [..., d]."""
        # Among the statistics, which travel with the parameters: no step changes them.
        d = features.shape[-1]
        mean = self.variable("batch_stats", "mean", jnp.zeros, d, jnp.float32).value
        scale = self.variable("batch_stats", "scale", jnp.ones, d, jnp.float32).value
        shape = (1,) * (features.ndim - 1) + (d,)
        return (features - mean.reshape(shape)) / scale.reshape(shape)


def measure(features: np.ndarray) -> dict[str, np.ndarray]:
    """The variables of a `FeatureNorm` for features like these, [..., d]."""
    rows = features.reshape(-1, features.shape[-1])
    mean, deviation = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    usual = np.sqrt(np.square(deviation).mean()) or 1.0
    scale = np.maximum(deviation, _SMALLEST_DEVIATION * usual)
    scale *= np.sqrt(np.square(deviation / scale).sum() / _SQUARED_LENGTH) or 1.0
    return {"mean": mean.astype(np.float32), "scale": scale.astype(np.float32)}


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
