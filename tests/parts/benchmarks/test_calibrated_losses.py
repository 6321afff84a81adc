"""The gaps of losses on small laws, and what docs/evidence/proofs.md proves."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import calibrated_losses
from topk_jax import losses, operators

LAW = np.array([0.4, 0.3, 0.18, 0.12])


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("k", [1, 2])
def test_the_gap_of_the_calibrated_hinge_is_that_of_the_probabilities(k):
    gap = calibrated_losses.hinge_gap(LAW, name="calibrated_top_k_hinge", k=k)
    assert abs(gap - (LAW[k - 1] - LAW[k])) < 1e-9
    for name in ("top_k_hinge", "convex_top_k_hinge"):
        assert abs(calibrated_losses.hinge_gap(LAW, name=name, k=k)) < 1e-9


def test_the_linear_programs_have_the_hinges_of_the_library(rng):
    # A dense grid of scores has no smaller risk, and nearly the least.
    grid = np.array(list(itertools.product(np.linspace(-1, 1, 9), repeat=3)))
    scores = jnp.asarray(np.pad(grid, ((0, 0), (0, 1))))
    for name in ("calibrated_top_k_hinge", "top_k_hinge", "convex_top_k_hinge"):
        risk = sum(
            p * getattr(losses, name)(scores, jnp.full(len(grid), y), k=2)
            for y, p in enumerate(LAW)
        )
        least = min(
            calibrated_losses._least_in_order(LAW, order, name=name, k=2)
            for order in itertools.permutations(range(4))
        )
        # All minima of these programs are at multiples of the margin, which the grid has.
        assert abs(float(risk.min()) - least) < 1e-9


def test_the_safe_noise_is_that_of_the_expected_maximum():
    # Of 2 and of 3 standard normal variables: 1 / sqrt(pi) and 3 / (2 sqrt(pi)).
    for k, expected in ((1, math.sqrt(math.pi)), (2, 2 * math.sqrt(math.pi) / 3)):
        assert abs(calibrated_losses.safe_noise(k) - expected) < 1e-6


@pytest.mark.parametrize(("part", "calibrated"), [(0.95, True), (1.05, False)])
def test_the_expected_hinge_has_a_gap_below_the_safe_noise_alone(part, calibrated):
    law = np.array([0.4, 0.35, 0.25, 0.0])
    epsilon = 2.0 * part * calibrated_losses.safe_noise(2)
    gap = calibrated_losses.noised_gap(law, epsilon=epsilon, k=2, margin=2.0)
    assert (gap > 1e-3) if calibrated else (abs(gap) < calibrated_losses.NO_GAP)


def test_three_classes_are_tied_at_the_minimum_for_a_large_noise():
    law = np.array([0.306, 0.243, 0.223, 0.142, 0.086])
    assert abs(calibrated_losses.noised_gap(law, epsilon=3.0, k=2)) < calibrated_losses.NO_GAP
    assert calibrated_losses.noised_gap(law, epsilon=1.0, k=2) > 1e-3


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
