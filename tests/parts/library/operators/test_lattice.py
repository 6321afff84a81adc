"""Counts of binned classes at thresholds that are not on the lattice."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from topk_jax.operators import _binning, _lattice

# The error of the interpolations between thresholds and between points; float32 adds less.
TOLERANCE = 2e-6


def counts(probabilities, k):
    """P(N = j) for j = 0 .. k - 1, by multiplication of all classes."""
    polynomial = np.eye(1, k)[0]
    for probability in probabilities:
        polynomial = (1 - probability) * polynomial + probability * np.append(0, polynomial[:-1])
    return polynomial


@pytest.mark.parametrize("k", [1, 2, 6, 32])
def test_counts_are_the_products(rng, k):
    points = _binning.grid(k, 1000)
    # Some k of them exceed the thresholds, none with a high chance.
    classes = rng.choice(18, size=20 * k) + len(points) // 2
    nodes = points[classes].max() + norm.isf([0.2, 0.1, 0.07, 0.05])
    thresholds = _binning.grid_around(nodes.min() - 1, nodes.max() + 1)
    weights = np.bincount(classes, minlength=len(points))
    exact = [norm.sf(node - points[classes]) for node in nodes]
    expected = np.array([counts(probabilities, k) for probabilities in exact])
    assert expected.max() > 0.1

    row = jnp.asarray(weights, jnp.float32)[None]
    column = jnp.asarray(nodes, jnp.float32)[:, None]
    sums = _lattice.sums(k, row, points, thresholds)
    found = _lattice.polynomial(sums, column, thresholds)[..., 0]
    np.testing.assert_allclose(found.T, expected, rtol=0, atol=TOLERANCE)

    chosen = np.unique(classes)[::10]
    without = [
        sum(
            norm.pdf(node - points[point])
            * counts(np.delete(probabilities, np.flatnonzero(classes == point)[0]), k)[-1]
            for node, probabilities in zip(nodes, exact, strict=True)
        )
        for point in chosen
    ]
    polynomials = jnp.asarray(expected.T, jnp.float32)[..., None]
    found = _lattice.densities_without(polynomials, column, points, thresholds)[0, chosen]
    np.testing.assert_allclose(found, without, rtol=0, atol=TOLERANCE)
