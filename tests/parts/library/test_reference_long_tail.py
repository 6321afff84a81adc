"""The references of the losses for long tails and for wrong labels, by differences and by hand."""

import math

import numpy as np
import pytest

from tests import reference

COUNTS = np.array([40, 20, 10, 5, 1])
L = len(COUNTS)
PARAMETERS = {
    "logit_adjusted_cross_entropy": {"class_counts": COUNTS, "tau": 0.8},
    "vector_scaling": {"class_counts": COUNTS, "gamma": 0.3, "tau": 1.2},
    "generalized_cross_entropy": {"q": 0.7},
    "symmetric_cross_entropy": {"alpha": 0.4, "beta": 0.8, "log_zero": -3.0},
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_gradients(rng, name):
    logits, labels = 1.5 * rng.normal(size=(4, L)), rng.integers(0, L, 4)
    loss, gradient = getattr(reference, name), getattr(reference, f"{name}_gradient")
    differences = reference.finite_difference_gradient(
        lambda s: loss(s, labels, **PARAMETERS[name]), logits, 1e-5
    )
    # The square of the step times third derivatives, and 1e-16 over the step.
    np.testing.assert_allclose(
        gradient(logits, labels, **PARAMETERS[name]), differences, rtol=0, atol=1e-8
    )


def test_by_hand():
    logits = np.log([1.0, 2.0, 5.0])
    # The priors 5/8, 2/8 and 1/8 make 5, 4 and 5.
    adjusted = reference.logit_adjusted_cross_entropy(logits, 1, class_counts=[5, 2, 1])
    assert adjusted == pytest.approx(math.log(14 / 4), abs=1e-15)
    scores = reference.adjust_logits(logits, class_counts=[5, 2, 1])
    np.testing.assert_allclose(np.exp(scores), [8 / 5, 8, 40], rtol=1e-15)
    # Factors 1, 1/2 and 1/4 of log 1, log 4 and log 16 make 1, 2 and 2.
    scaled = reference.vector_scaling(
        np.log([1.0, 4.0, 16.0]), 2, class_counts=[16, 4, 1], gamma=0.5, tau=0.0
    )
    assert scaled == pytest.approx(math.log(5 / 2), abs=1e-15)
    generalized = reference.generalized_cross_entropy(logits, 1, q=0.5)
    assert generalized == pytest.approx(1.0, abs=1e-15)
    symmetric = reference.symmetric_cross_entropy(logits, 1, alpha=0.5, beta=2.0)
    assert symmetric == pytest.approx(0.5 * math.log(4) + 2 * 4 * 0.75, abs=1e-15)
    # 1, 2/3 and 8/15 have the mean 11/15.
    weights = reference.class_balanced_weights([1, 2, 4], beta=0.5)
    np.testing.assert_allclose(weights, [15 / 11, 10 / 11, 8 / 11], rtol=1e-15)
