"""Logits adjusted by class frequencies, against the reference and by what they undo."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from topk_jax import losses, sets

COUNTS = np.array([500, 120, 40, 7, 1])


def test_the_reference_for_every_type_and_shape(rng):
    adjust = jax.jit(sets.adjust_logits)
    for dtype, eps in ((jnp.float32, 1.2e-7), (jnp.bfloat16, 1.2e-7), (jnp.float16, 1.2e-7)):
        logits = jnp.asarray(10 * rng.normal(size=(2, 3, 5)), dtype)
        found = adjust(logits, class_counts=COUNTS, tau=0.75)
        assert found.dtype == jnp.float32
        expected = reference.adjust_logits(logits, class_counts=COUNTS, tau=0.75)
        # A few roundings of numbers below 50.
        np.testing.assert_allclose(found, expected, atol=4 * eps * 50)
    with jax.enable_x64(True):
        logits = jnp.asarray(10 * rng.normal(size=5))
        found = sets.adjust_logits(logits, class_counts=COUNTS)
        assert found.dtype == jnp.float64
        np.testing.assert_allclose(
            found, reference.adjust_logits(logits, class_counts=COUNTS), rtol=1e-14
        )


def test_the_loss_of_adjusted_logits_is_the_cross_entropy(rng):
    @jax.jit
    def both(logits, labels):
        adjusted = sets.adjust_logits(logits, class_counts=COUNTS, tau=0.5)
        found = losses.logit_adjusted_cross_entropy(adjusted, labels, class_counts=COUNTS, tau=0.5)
        return found, losses.cross_entropy(logits, labels)

    logits = jnp.asarray(3 * rng.normal(size=(8, 5)), jnp.float32)
    found, expected = both(logits, jnp.asarray(rng.integers(5, size=8), jnp.int32))
    # A dozen roundings of float32, of numbers below 10.
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-5)


def test_masks_stay_and_nan_stays():
    logits = jnp.array([[0.0, -jnp.inf, 1.0, 2.0, 3.0], [0.0, jnp.nan, 1.0, 2.0, 3.0]])
    adjusted = np.asarray(sets.adjust_logits(logits, class_counts=COUNTS))
    assert adjusted[0, 1] == -np.inf
    np.testing.assert_array_equal(np.isnan(adjusted), np.isnan(logits))
    np.testing.assert_array_equal(sets.adjust_logits(logits, class_counts=COUNTS, tau=0.0), logits)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"class_counts": [3, 2]}, ValueError, r"class_counts must have .* 5 classes.*\(2,\)"),
        ({"class_counts": [3, 2, 0, 1, 1]}, ValueError, "must be positive .*got 0 for class 2"),
        ({"class_counts": "12"}, TypeError, "class_counts must be a real number or array"),
        ({"tau": -1.0}, ValueError, "tau must be at least 0, got -1"),
        ({"tau": jnp.ones(2)}, ValueError, r"tau must be a scalar, got shape \(2,\)"),
        ({"logits": jnp.arange(5)}, TypeError, "logits must be a floating-point array"),
    ],
)
def test_refusals(arguments, error, message):
    given = {"logits": jnp.zeros(5), "class_counts": COUNTS} | arguments
    with pytest.raises(error, match=message):
        sets.adjust_logits(given.pop("logits"), **given)
