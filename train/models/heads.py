"""Heads: float32 features in, float32 logits out, whatever the precision of the network below."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn


class TwoLogits(NamedTuple):
    """What a network with two heads gives, each [n, L]."""

    logits: jax.Array
    proposal_logits: jax.Array


class LinearHead(nn.Module):
    """Logits as an affine function of the features.

    The weights start with variance 1 / features, so that features of unit scale give logits of unit
    scale whatever their number, and the biases at 0. PyTorch starts weights with a third of that
    variance and biases of the same size, for no reason that holds for a last layer.
    """

    num_classes: int

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Features [n, d] to logits [n, L]."""
        return nn.Dense(self.num_classes)(features)


class CosineHead(nn.Module):
    """Logits as cosines of the angles between the features and one vector a class.

    No bias; the scale belongs to the loss. An example whose features are all 0 has logits of 0 and
    passes no gradient on.
    """

    num_classes: int

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Features [n, d] to cosines [n, L]."""
        class_vectors = self.param(
            "class_vectors", _unit_class_vectors, (features.shape[-1], self.num_classes)
        )
        # Margins and noise can be of the order of 0.01, which the default precision of a product
        # on some accelerators would blur; this one is a small part of a network.
        return jnp.matmul(
            _normalize(features, axis=-1),
            _normalize(class_vectors, axis=0),
            precision=jax.lax.Precision.HIGHEST,
        )


class TwoHeads(nn.Module):
    """Two affine functions of the same features, each starting as a `LinearHead` does."""

    num_classes: int

    @nn.compact
    def __call__(self, features: jax.Array) -> TwoLogits:
        """Features [n, d] to the logits of the labels and those that propose candidates."""
        return TwoLogits(
            logits=nn.Dense(self.num_classes, name="labels")(features),
            proposal_logits=nn.Dense(self.num_classes, name="proposals")(features),
        )


def _unit_class_vectors(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    return _normalize(jax.random.uniform(key, shape, minval=-1.0, maxval=1.0), axis=0)


def _normalize(vectors: jax.Array, *, axis: int) -> jax.Array:
    """Vectors divided by their length; 0 where the length is below 1e-12.

    Hazard: the gradient grows as 1 / length, and is NaN at 0 or, with a floor under the length,
    so large that one dead example ruins the step. Choice: no gradient there.
    """
    squares = (vectors * vectors).sum(axis=axis, keepdims=True)
    positive = squares > 1e-24
    inverse_length = jax.lax.rsqrt(jnp.where(positive, squares, 1.0))
    return jnp.where(positive, vectors * inverse_length, 0.0)
