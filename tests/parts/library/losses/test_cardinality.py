"""The choice of a set size: its costs, its loss, and what the minimizer chooses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.compilation import for_users
from topk_jax import losses

ROUNDING = 2e-6
# In any order.
SIZES = (2, 4, 1)


@for_users
def value_and_gradient(selector_logits, costs):
    values = losses.cardinality_aware(selector_logits, costs)

    def total(scores):
        return losses.cardinality_aware(scores, costs).sum()

    return values, jax.grad(total)(selector_logits)


@for_users
def costs_of(logits, labels, weight):
    return losses.cardinality_costs(logits, labels, sizes=SIZES, weight=weight)


def draw(rng, scale=2.0):
    scores = jnp.asarray(scale * rng.normal(size=(6, 3)), jnp.float32)
    return scores, jnp.asarray(rng.random((6, 3)), jnp.float32)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_values_and_gradients(rng, scale):
    scores, costs = draw(rng, scale)
    costs = costs.at[0].set(jnp.array([0.0, 1.0, 1.0])).at[1].set(1.0)
    values, gradient = value_and_gradient(scores, costs)
    # A few roundings of numbers relative to the loss, or to 1.
    expected = reference.cardinality_aware(scores, costs)
    np.testing.assert_allclose(values, expected, rtol=ROUNDING, atol=ROUNDING)
    expected = reference.cardinality_aware_gradient(scores, costs)
    np.testing.assert_allclose(gradient, expected, rtol=ROUNDING, atol=ROUNDING)


def test_the_minimizer_chooses_the_smallest_expected_cost(rng):
    """At r = log E(1 - c), which ranks the sizes by their expected costs, the gradient is zero."""
    costs = jnp.asarray(rng.random((50, 3)), jnp.float32)
    scores = jnp.broadcast_to(jnp.log((1 - costs).mean(axis=0)), costs.shape)
    gradient = value_and_gradient(scores, costs)[1].mean(axis=0)
    # Means of 50 numbers under 3.
    np.testing.assert_allclose(gradient, 0, atol=ROUNDING)
    assert value_and_gradient(scores + scores[:, ::-1], costs)[1].mean(axis=0).any()


def test_a_masked_size_is_not_there(rng):
    scores, costs = draw(rng)
    values, gradient = value_and_gradient(scores.at[:, 1].set(-jnp.inf), costs)
    kept = np.array([0, 2])
    expected = value_and_gradient(scores[:, kept], costs[:, kept])
    np.testing.assert_allclose(values, expected[0], rtol=ROUNDING)
    np.testing.assert_allclose(gradient[:, kept], expected[1], atol=ROUNDING)
    np.testing.assert_array_equal(gradient[:, 1], 0)
    assert np.isfinite(jax.jit(losses.cardinality_aware)(jnp.full(3, -jnp.inf), costs[0]))


def test_a_cost_out_of_range_makes_its_own_example_nan(rng):
    scores, costs = draw(rng)
    clean = value_and_gradient(scores, costs)[0]
    for cost in (-0.1, 1.1, np.nan):
        broken = value_and_gradient(scores, costs.at[2, 1].set(cost))[0]
        np.testing.assert_array_equal(broken, clean.at[2].set(jnp.nan))


def test_costs(rng):
    logits = jnp.asarray(rng.integers(0, 4, (20, 8)), jnp.float32).at[0, 3].set(-jnp.inf)
    labels = jnp.asarray(rng.integers(0, 8, 20))
    for weight in (0.0, 0.05, 3.0):
        costs = costs_of(logits, labels, weight)
        expected = reference.cardinality_costs(logits, labels, sizes=SIZES, weight=weight)
        np.testing.assert_allclose(costs, expected, rtol=ROUNDING)
    # Without a price of the size the cost is the error.
    for index, size in enumerate(SIZES):
        errors = jax.jit(losses.top_k_error, static_argnames="k")(logits, labels, k=size)
        np.testing.assert_array_equal(costs_of(logits, labels, 0.0)[:, index], errors)


def test_examples_that_do_not_count_have_no_loss_and_no_gradient(rng):
    scores, costs = draw(rng)
    clean = value_and_gradient(scores, costs)
    counts = np.arange(6) % 3 != 1
    # A label of -100 has costs that are NaN.
    hurt = scores.at[4].set(jnp.inf), costs.at[1].set(jnp.nan)

    @jax.jit
    def total(scores, costs):
        values = losses.cardinality_aware(scores, costs, where=counts)
        return values.sum(), values

    gradient, values = jax.grad(total, has_aux=True)(*hurt)
    for ours, theirs in ((values, clean[0]), (gradient, clean[1])):
        # Two programs: XLA may contract a product and a sum in one of them.
        np.testing.assert_allclose(ours[counts], theirs[counts], rtol=ROUNDING, atol=ROUNDING)
        assert (np.asarray(ours)[~counts] == 0).all()
