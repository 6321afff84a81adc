"""The noised losses equal pytopk, the authors' PyTorch code, given the same noise.

pytopk draws its noise inside; its generator is seeded and the same draw is handed to ours.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import pytopk
import torch

from topk_jax import losses, operators

SHAPES = [(4, 7, 1, 1), (8, 100, 5, 10), (3, 1081, 20, 3)]


def noise_of(seed, batch, num_classes, num_samples):
    """The noise that pytopk draws next, [M, n, L]; the state of the generator is restored."""
    torch.manual_seed(seed)
    drawn = torch.randn(batch, num_classes, num_samples).numpy()
    torch.manual_seed(seed)
    return jnp.asarray(np.moveaxis(drawn, -1, 0))


def make_batch(rng, batch, num_classes):
    logits = 2 * rng.normal(size=(batch, num_classes)).astype(np.float32)
    return logits, rng.integers(0, num_classes, batch).astype(np.int32)


def theirs(loss, logits, labels):
    scores = torch.tensor(logits, requires_grad=True)
    value = loss(scores, torch.tensor(labels, dtype=torch.int64))
    value.backward()
    return value.item(), scores.grad.numpy()


@pytest.mark.parametrize(("batch", "num_classes", "k", "num_samples"), SHAPES)
def test_balanced_loss(rng, batch, num_classes, k, num_samples):
    logits, labels = make_batch(rng, batch, num_classes)
    noise = noise_of(0, batch, num_classes, num_samples)
    expected = theirs(pytopk.BalNoisedTopK(k=k, epsilon=0.7, n_sample=num_samples), logits, labels)

    def ours(logits):
        return losses.noised_top_k_hinge(
            logits, labels, k=k, epsilon=0.7, num_samples=num_samples, noise=noise
        ).mean()

    value, gradient = jax.jit(jax.value_and_grad(ours))(logits)
    # Sums of a few float32 numbers in another order; gradients are fractions k / M / n.
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("batch", "num_classes", "k", "num_samples"), SHAPES)
def test_imbalanced_loss(rng, batch, num_classes, k, num_samples):
    logits, labels = make_batch(rng, batch, num_classes)
    logits /= 10
    counts = rng.integers(1, 500, num_classes)
    noise = noise_of(1, batch, num_classes, num_samples)
    loss = pytopk.ImbalNoisedTopK(
        k=k, epsilon=0.1, max_m=0.4, cls_num_list=counts.tolist(), scale=30, n_sample=num_samples
    )
    expected = theirs(loss, logits, labels)
    margins = losses.class_margins(counts, max_margin=0.4)

    def ours(logits):
        return losses.noised_top_k_hinge(
            logits,
            labels,
            k=k,
            epsilon=0.1,
            num_samples=num_samples,
            noise=noise,
            margins=margins,
            scale=30.0,
        ).mean()

    value, gradient = jax.jit(jax.value_and_grad(ours))(logits)
    # As above, after a fourth root taken in float64 there and in float32 here.
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("batch", "num_classes", "k", "num_samples"), SHAPES)
def test_operator(rng, batch, num_classes, k, num_samples):
    logits, _ = make_batch(rng, batch, num_classes)
    noise = noise_of(2, batch, num_classes, num_samples)
    layer = pytopk.NoisedTopK(k=k, epsilon=0.5, n_sample=num_samples)
    expected = layer(torch.tensor(logits)).numpy()

    @jax.jit
    def ours(logits):
        return operators.perturbed_top_k_value(
            None, logits, k, epsilon=0.5, num_samples=num_samples, noise=noise
        )

    # Means of float32 numbers.
    np.testing.assert_allclose(ours(logits), expected, rtol=1e-5, atol=1e-6)
