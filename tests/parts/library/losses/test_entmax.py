"""Identities, edges and small values of the entmax losses, and their slope in alpha."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import reference
from tests.compilation import for_users
from topk_jax import losses, operators

ROUNDING = 2e-6
ALPHAS = (1.0, 1.0 + 1e-6, 1.2, 1.5, 1.9, 2.0)


@pytest.fixture
def batch(rng):
    return jnp.asarray(rng.normal(size=(12, 7)), jnp.float32), jnp.asarray(rng.integers(7, size=12))


@for_users
def value_and_gradient(logits, labels, alpha):
    values = losses.entmax_loss(logits, labels, alpha=alpha)

    def total(logits):
        return losses.entmax_loss(logits, labels, alpha=alpha).sum()

    return values, jax.grad(total)(logits)


def compare(ours, expected, tolerance=ROUNDING):
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_values_and_gradients_at_any_alpha_and_scale(batch, alpha, scale):
    logits, labels = scale * batch[0], batch[1]
    # The reference divides by alpha - 1, twice.
    alpha = np.float32(alpha)
    close_to_1 = 0 < alpha - 1 < 1e-5
    settings = {"alpha": 1.0 if close_to_1 else float(alpha)}
    expected = reference.entmax_loss(logits, labels, **settings)
    gradient = reference.entmax_loss_gradient(logits, labels, **settings)
    # The derivative of the loss in alpha is at most log(7)^2 / 2.
    tolerance = 4e-6 if close_to_1 else ROUNDING
    compare(value_and_gradient(logits, labels, alpha), (expected, gradient), tolerance)


def test_alpha_of_1_is_cross_entropy(batch):
    logits, labels = batch
    values, gradient = value_and_gradient(logits, labels, 1.0)
    expected = jax.value_and_grad(lambda s: losses.cross_entropy(s, labels).sum())(logits)
    compare((values.sum(), gradient), expected)
    # To the last digits of a small loss too.
    confident = logits.at[jnp.arange(12), labels].add(30.0)
    ours = losses.entmax_loss(confident, labels, alpha=1.0)
    np.testing.assert_allclose(ours, losses.cross_entropy(confident, labels), rtol=ROUNDING)


def test_alpha_of_1_leaves_masked_classes_out(batch):
    logits, labels = batch
    masked = jnp.where(jax.nn.one_hot(labels, 7) == 1, logits, -jnp.inf)
    for scores in (logits.at[:, 2].set(-jnp.inf), masked, jnp.full_like(logits, -jnp.inf)):
        values, gradient = value_and_gradient(scores, labels, 1.0)
        expected = reference.cross_entropy(np.maximum(scores, -1e30), labels)
        np.testing.assert_allclose(values, expected, rtol=ROUNDING, atol=ROUNDING)
        assert np.isfinite(gradient).all()
        assert (np.asarray(gradient)[np.isneginf(scores)] == 0).all()


def test_alpha_of_2_is_the_sparse_top_loss_of_one_target(batch):
    logits, labels = batch
    targets = jax.nn.one_hot(labels, 7)
    expected = jax.grad(lambda s: losses.sparse_top_loss(s, targets).sum())(logits)
    compare(
        value_and_gradient(logits, labels, 2.0), (losses.sparse_top_loss(logits, targets), expected)
    )
    np.testing.assert_array_equal(
        losses.sparsemax_loss(logits, labels), losses.entmax_loss(logits, labels, alpha=2.0)
    )


def test_sparsemax_loss_is_that_of_optax(batch):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        expected = jax.jit(optax.losses.multiclass_sparsemax_loss)(*batch)
    compare([losses.sparsemax_loss(*batch)], [expected])


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
def test_zero_from_a_margin_on(alpha):
    logits = jnp.array([1.0, 0.5, 0.0]).at[0].add(1 / (alpha - 1) - 0.5)
    values, gradient = value_and_gradient(logits, jnp.int32(0), alpha)
    np.testing.assert_array_equal(values, 0.0)
    np.testing.assert_array_equal(gradient, 0.0)
    assert value_and_gradient(logits.at[0].add(-0.25), jnp.int32(0), alpha)[0] > 0


@pytest.mark.parametrize("alpha", [1.25, 1.5, 1.75, 2.0])
@pytest.mark.parametrize("doubt", [0.3, 1e-2, 1e-4])
def test_small_losses_keep_their_digits(alpha, doubt):
    """Two classes; in closed form with p = 1 - e, up to a margin that is inverted exactly."""
    exponent = alpha - 1
    # The gap of the scores at which the other class has the probability `doubt`.
    gap = ((1 - doubt) ** exponent - doubt**exponent) / exponent
    logits = np.array([gap, 0.0], np.float32)
    expected = reference.entmax_loss(logits, 0, alpha=alpha)
    ours = losses.entmax_loss(logits, jnp.int32(0), alpha=alpha)
    # The rounding of the gap, by how much a small loss depends on it: p_other / loss.
    slope = doubt / expected
    np.testing.assert_allclose(ours, expected, rtol=ROUNDING * (1 + slope * gap))
    assert ours > 0


def test_slope_in_alpha(batch):
    with jax.enable_x64(True):
        logits, labels = jnp.asarray(batch[0], jnp.float64), batch[1]
        loss = jax.jit(functools.partial(losses.entmax_loss, logits, labels))
        slope = jax.jit(jax.jacfwd(lambda alpha: loss(alpha=alpha)))
        step = 1e-5
        for alpha in (1.0 + step, 1.01, 1.5, 1.97, 2.0 - step):
            differences = (loss(alpha=alpha + step) - loss(alpha=alpha - step)) / (2 * step)
            # Third derivatives of order 10, and 1e-15 over the step.
            np.testing.assert_allclose(slope(alpha), differences, atol=1e-8)


def test_gradient_is_sparse_and_sums_to_zero(batch):
    logits, labels = 4 * batch[0], batch[1]
    _, gradient = value_and_gradient(logits, labels, 1.5)
    probabilities = operators.entmax(logits, alpha=1.5)
    assert (probabilities == 0).any()
    compare([gradient], [probabilities - jax.nn.one_hot(labels, 7)])
    np.testing.assert_allclose(gradient.sum(axis=-1), 0, atol=ROUNDING)
