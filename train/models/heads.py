"""Heads: float32 features to float32 logits, for any precision of the layers below."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from topk_jax.heads import unit_vectors


class TwoLogits(NamedTuple):
    """The output of a network with two heads, each [n, L]."""

    logits: jax.Array
    proposal_logits: jax.Array


class LinearHead(nn.Module):
    """Logits as an affine function of the features.

    The initial weights have variance 1 / features, so that features of unit scale give logits of
    unit scale for any number of features. The initial biases are 0. PyTorch's initial weights have
    a third of that variance, and its biases the same; its reason does not hold for a last layer.
    """

    num_classes: int

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Features [n, d] to logits [n, L]."""
        return nn.Dense(self.num_classes)(features)


class CosineHead(nn.Module):
    """Logits as cosines of the angles between the features and one vector per class.

    It does not have a bias. An example whose features are all 0 has logits 0 and no gradient.

    Attributes:
        num_classes: the number of classes.
        scale: the factor of the cosines; None for a loss that takes cosines and scales them itself.
        learn_scale: whether the factor is trained. It is `scale` at first, and stays positive.
    """

    num_classes: int
    scale: float | None = None
    learn_scale: bool = False

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Features [n, d] to logits [n, L]: cosines, times the scale."""
        class_vectors = self.param(
            "class_vectors", _unit_class_vectors, (features.shape[-1], self.num_classes)
        )
        # Margins and noise can be of the order of 0.01, too small for the default precision of a
        # product on some accelerators. This product is a small part of a network.
        cosines = jnp.matmul(
            unit_vectors(features, axis=-1),
            unit_vectors(class_vectors, axis=0),
            precision=jax.lax.Precision.HIGHEST,
        )
        if self.scale is None:
            return cosines
        if not self.learn_scale:
            return self.scale * cosines
        # Relative to `scale`, so that weight decay pulls towards it, and not towards 1.
        log_scale = self.param("log_scale", nn.initializers.zeros_init(), ())
        return self.scale * jnp.exp(log_scale) * cosines


class TwoHeads(nn.Module):
    """Two affine functions of the same features, each initialised as a `LinearHead` is."""

    num_classes: int

    @nn.compact
    def __call__(self, features: jax.Array) -> TwoLogits:
        """Features [n, d] to the logits of the labels and the logits that propose candidates."""
        return TwoLogits(
            logits=nn.Dense(self.num_classes, name="labels")(features),
            proposal_logits=nn.Dense(self.num_classes, name="proposals")(features),
        )


def _unit_class_vectors(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    return unit_vectors(jax.random.uniform(key, shape, minval=-1.0, maxval=1.0), axis=0)
