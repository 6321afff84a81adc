"""Which losses are calibrated: what docs/theory.md proves, on small laws."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import losses, operators

# In the order of the probabilities, so that the K best classes are the first K.
LAW = np.array([0.4, 0.3, 0.18, 0.12])
# The tests of the expected hinge need a law whose last class never occurs.
LAW_OF_THREE = np.array([0.4, 0.35, 0.25, 0.0])


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def gap(loss, law, scores, k):
    """The least risk of scores whose K best classes are wrong or tied, minus that of all scores."""
    risk = sum(
        p * np.asarray(loss(jnp.asarray(scores), jnp.full(len(scores), label)))
        for label, p in enumerate(law)
    )
    wrong = scores[:, :k].min(axis=1) <= scores[:, k:].max(axis=1)
    return risk[wrong].min() - risk.min()


def safe_noise(k):
    """The epsilon, for a margin of 1, below which the expected hinge is calibrated."""
    return -1 / float(
        operators.expected_top_k_value(jnp.zeros(k + 1), k + 1, epsilon=1.0, num_nodes=256)
    )


@pytest.mark.parametrize("k", [1, 2])
def test_the_gap_of_the_calibrated_hinge_is_that_of_the_probabilities(k):
    # All minima of these piecewise linear risks are at multiples of the margin, which the grid has.
    grid = np.array(list(itertools.product(np.linspace(-1, 1, 9), repeat=3)))
    scores = np.pad(grid, ((0, 0), (0, 1)))

    def of(name):
        return gap(lambda s, y: getattr(losses, name)(s, y, k=k), LAW, scores, k)

    assert abs(of("calibrated_top_k_hinge") - (LAW[k - 1] - LAW[k])) < 1e-9
    for name in ("top_k_hinge", "convex_top_k_hinge"):
        assert abs(of(name)) < 1e-9


def test_the_safe_noise_is_that_of_the_expected_maximum():
    # Of 2 and of 3 standard normal variables: 1 / sqrt(pi) and 3 / (2 sqrt(pi)).
    for k, expected in ((1, math.sqrt(math.pi)), (2, 2 * math.sqrt(math.pi) / 3)):
        assert abs(safe_noise(k) - expected) < 1e-6


@pytest.mark.parametrize(("part", "calibrated"), [(0.95, True), (1.05, False)])
def test_the_expected_hinge_has_a_gap_below_the_safe_noise_alone(part, calibrated):
    # Scores may be shifted, and the class that never occurs is best far below the others.
    grid = np.array(list(itertools.product(np.linspace(-1, 3, 41), repeat=2)))
    scores = np.pad(grid, ((0, 0), (0, 2)))
    scores[:, 3] = -40
    loss = functools.partial(losses.expected_top_k_hinge, k=2, epsilon=part * safe_noise(2))
    found = gap(loss, LAW_OF_THREE, scores, 2)
    assert (found > 1e-3) if calibrated else (abs(found) < 1e-6)


def test_noise_that_is_drawn_anew_breaks_every_tie(rng):
    # The mean over all orders of some noise has the symmetry of the normal law.
    law = jnp.array([0.5, 0.3, 0.2], jnp.float64)
    drawn = rng.normal(size=(1, 40, 3))
    noise = np.concatenate(
        [drawn[..., list(order)] for order in itertools.permutations(range(3))], 1
    )
    scores, epsilon = jnp.array([1.0, 1.0, 0.2]), 3.0

    def risk(scores):
        by_label = [
            losses.noised_top_k_hinge(
                jnp.broadcast_to(scores, (noise.shape[1], 3)),
                jnp.full(noise.shape[1], label),
                k=1,
                epsilon=epsilon,
                num_samples=1,
                noise=jnp.asarray(noise),
            ).mean()
            for label in range(3)
        ]
        return law @ jnp.stack(by_label)

    slope = np.asarray(jax.grad(risk)(scores))
    given = np.asarray(scores)
    second = np.sort(given + epsilon * noise[0], axis=-1)[:, -2]
    active = (1 + second > given[0]).mean()
    assert 0.1 < active < 0.9
    assert abs((slope[0] - slope[1]) + 0.2 * active) < 1e-9


@pytest.mark.parametrize(("k", "epsilon"), [(1, 0.3), (3, 1.0)])
def test_the_bounds_of_proposition_4_3_5(rng, k, epsilon):
    num_classes = 6
    scores = jnp.asarray(rng.normal(size=(20, num_classes)))

    def value(scores):
        return operators.expected_top_k_value(scores, k, epsilon=epsilon)

    distance = jnp.abs(value(scores) - operators.top_k_value(scores, k))
    assert (distance < epsilon * k * math.sqrt(2 * math.log(num_classes))).all()
    curvature = jax.vmap(jax.hessian(value))(scores)
    norms = jnp.linalg.norm(curvature, ord=2, axis=(-2, -1))
    assert (norms < 4 * math.sqrt(k * num_classes) / epsilon).all()


def test_average_k_orders_other_classes_by_probability():
    # Two kinds of examples, ten of each, with labels in the parts of their laws.
    laws = np.array([[0.6, 0.3, 0.1, 0.0], [0.4, 0.3, 0.2, 0.1]])
    kinds = np.repeat([0, 1], 10)
    labels = np.concatenate([np.repeat(np.arange(4), (10 * p).round().astype(int)) for p in laws])
    # Candidates are the pairs of at least 0.4 that are not the label: 4 + 6 of 20 examples.
    k, alpha = 1.5, 0.7
    proposals = jnp.log(laws + 1e-9)[kinds]
    chosen = losses.average_k_candidates(proposals, labels, k=k)
    np.testing.assert_array_equal(chosen, (laws[kinds] >= 0.4) & (np.arange(4) != labels[:, None]))
    factor = alpha * 20 / (20 * 3 - 10)
    best = laws / (laws + factor * (1 - laws))
    scores = jnp.where(laws >= 0.4, 30.0, jnp.log(best + 1e-12) - jnp.log1p(-best))

    def loss(scores):
        return losses.average_k(scores[kinds], proposals, labels, k=k, alpha=alpha)

    # A sigmoid of 30, and one of the probability 0, leave a slope below 1e-11.
    np.testing.assert_allclose(jax.grad(loss)(scores), 0.0, atol=1e-10)
