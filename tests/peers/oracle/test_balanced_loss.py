"""Weights of classes, and losses with them, equal the package balanced-loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from balanced_loss import Loss

from topk_jax import losses

COUNTS = [5000, 800, 800, 120, 9, 2, 1]
L = len(COUNTS)


def binary_cross_entropy(logits, labels):
    """The mean over the classes, as theirs."""
    return losses.binary_cross_entropy(logits, jax.nn.one_hot(labels, L)) / L


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.99, 0.9999])
@pytest.mark.parametrize("loss", [losses.cross_entropy, binary_cross_entropy])
def test_weighted_losses(rng, beta, loss):
    logits = 3 * rng.normal(size=(32, L)).astype(np.float32)
    labels = rng.integers(0, L, 32).astype(np.int32)
    peer = Loss(loss.__name__, beta=beta, samples_per_class=COUNTS, class_balanced=True)
    scores = torch.tensor(logits, requires_grad=True)
    expected = peer(scores, torch.tensor(labels, dtype=torch.int64))
    expected.backward()
    weights = losses.class_balanced_weights(COUNTS, beta=beta)

    def ours(logits):
        return (weights[labels] * loss(logits, labels)).mean()

    value, gradient = jax.value_and_grad(ours)(jnp.asarray(logits))
    # Sums of float32 numbers in another order; theirs is made of float64 weights.
    np.testing.assert_allclose(value, expected.item(), rtol=1e-5)
    np.testing.assert_allclose(gradient, scores.grad.numpy(), rtol=1e-5, atol=1e-7)
