"""Losses of labels that are distributions over the classes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from topk_jax import losses

NUM_EXAMPLES, NUM_CLASSES = 5, 7
COUNTS = np.linspace(3, 30, NUM_CLASSES)
NOISE = np.random.default_rng(3).normal(size=(4, NUM_EXAMPLES, NUM_CLASSES))
# A loss of each kind: a softmax, a hinge, polynomials, samples, class counts.
LOSSES = {
    "cross_entropy": {},
    "top_k_hinge": {"k": 3},
    "smooth_top_k_hinge": {"k": 2, "tau": 0.5},
    "noised_top_k_hinge": {"k": 2, "epsilon": 0.5, "num_samples": 4, "noise": NOISE},
    "logit_adjusted_cross_entropy": {"class_counts": COUNTS, "tau": 1.0},
}
each_loss = pytest.mark.parametrize("name", LOSSES)
# A dozen roundings of float32, and sums over seven labels.
ROUNDING = 3e-6


def loss_of(name):
    return functools.partial(getattr(losses, name), **LOSSES[name])


def drawn(rng, num_plausible=NUM_CLASSES):
    """Logits, and a distribution over `num_plausible` classes of each example."""
    logits = 3 * rng.normal(size=(NUM_EXAMPLES, NUM_CLASSES))
    weights = rng.random((NUM_EXAMPLES, NUM_CLASSES))
    weights *= rng.permuted(
        np.arange(NUM_CLASSES) < num_plausible * np.ones((NUM_EXAMPLES, 1)), axis=1
    )
    return logits.astype(np.float32), (weights / weights.sum(axis=1, keepdims=True)).astype(
        np.float32
    )


def with_gradient(logits, plausibilities, **options):
    def total(logits, plausibilities):
        values = losses.expect_over_labels(logits, plausibilities, **options)
        return values.sum(), values

    compiled = jax.jit(jax.value_and_grad(total, has_aux=True))
    (_, values), gradient = compiled(jnp.asarray(logits), plausibilities)
    return np.asarray(values), np.asarray(gradient)


def expected(name, logits, plausibilities):
    values, gradient = np.zeros(NUM_EXAMPLES), np.zeros(logits.shape)
    for label in range(NUM_CLASSES):
        labels, weights = np.full(NUM_EXAMPLES, label), plausibilities[:, label].astype(np.float64)
        arguments = (logits.astype(np.float64), labels)
        values += weights * getattr(reference, name)(*arguments, **LOSSES[name])
        slope = getattr(reference, f"{name}_gradient")(*arguments, **LOSSES[name])
        gradient += weights[:, None] * slope
    return values, gradient


@each_loss
@pytest.mark.parametrize("num_labels", [None, 2])
def test_values_and_gradients_are_expectations(name, num_labels, rng):
    arrays = drawn(rng, num_labels or NUM_CLASSES)
    found = with_gradient(*arrays, loss=loss_of(name), num_labels=num_labels)
    for ours, theirs in zip(found, expected(name, *arrays), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=ROUNDING, atol=ROUNDING)


@each_loss
def test_one_hot_targets_are_labels(name, rng):
    logits, _ = drawn(rng)
    labels = rng.integers(NUM_CLASSES, size=NUM_EXAMPLES)
    one_hot = labels[:, None] == np.arange(NUM_CLASSES)
    found = losses.expect_over_labels(logits, one_hot, loss=loss_of(name), num_labels=1)
    # Two programs: XLA may contract a product and a sum in one of them.
    np.testing.assert_allclose(found, loss_of(name)(logits, labels), rtol=3e-7, atol=3e-7)


def test_what_is_no_distribution_is_nan_for_its_example_alone(rng):
    logits, plausibilities = drawn(rng, 3)
    clean = with_gradient(logits, plausibilities, loss=losses.cross_entropy, num_labels=3)
    assert np.isfinite(clean[0]).all()
    heaviest = plausibilities[1].argmax()
    for value in (np.nan, -0.25, 2.0, 0.0):
        hurt = plausibilities.copy()
        hurt[1, heaviest] = value
        values, gradient = with_gradient(logits, hurt, loss=losses.cross_entropy, num_labels=3)
        assert np.isnan(values[1])
        assert np.isnan(gradient[1]).any()
        np.testing.assert_array_equal(np.delete(values, 1), np.delete(clean[0], 1))
        np.testing.assert_array_equal(np.delete(gradient, 1, 0), np.delete(clean[1], 1, 0))
        if not np.isnan(value):
            allowed = "sum to 1 for each example" if value == 0 else "be from 0 to 1"
            with pytest.raises(ValueError, match=f"plausibilities must {allowed}, got"):
                losses.expect_over_labels(logits, hurt, loss=losses.cross_entropy)
    # More plausible labels than the loss is computed for.
    assert np.isnan(
        losses.expect_over_labels(logits, plausibilities, loss=losses.cross_entropy, num_labels=2)
    ).all()


def test_a_masked_class_that_is_not_plausible_is_harmless(rng):
    logits, plausibilities = drawn(rng, 3)
    masked = plausibilities == 0
    values, gradient = with_gradient(
        np.where(masked, -np.inf, logits), plausibilities, loss=losses.cross_entropy
    )
    # As low as makes no difference.
    others = expected("cross_entropy", np.where(masked, -1e4, logits), plausibilities)
    np.testing.assert_allclose(values, others[0], rtol=ROUNDING, atol=ROUNDING)
    assert (gradient[masked] == 0).all()


def test_examples_that_do_not_count_have_no_loss_and_no_gradient(rng):
    logits, plausibilities = drawn(rng)
    clean = with_gradient(logits, plausibilities, loss=losses.cross_entropy)
    logits[2], plausibilities[2] = np.nan, -7
    counts = np.arange(NUM_EXAMPLES) != 2
    values, gradient = with_gradient(
        logits, plausibilities, loss=losses.cross_entropy, where=counts
    )
    np.testing.assert_allclose(values, np.where(counts, clean[0], 0), rtol=3e-7)
    np.testing.assert_allclose(
        gradient, np.where(counts[:, None], clean[1], 0), rtol=ROUNDING, atol=ROUNDING
    )
