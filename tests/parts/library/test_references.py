"""The references against brute force, by hand, by integrals and by differences."""

import ast
import functools
import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, special

from tests import reference

close = functools.partial(np.testing.assert_allclose, rtol=0)
L = 7
# Both sides are float64 and a few hundred operations on numbers below 1e2 apart.
ROUNDING = 1e-12
# Central differences with a step of 1e-5: third derivatives of order 1 to 10 give 1e-10 to 1e-9,
# cancellation 1e-16 / 1e-5 times values below 100 gives 1e-9.
STEP, DIFFERENCES = 1e-5, 1e-8
COUNTS = np.array([40, 30, 20, 10, 5, 2, 1])
MARGINS = np.linspace(0.1, 1.3, L)
NOISE = np.random.default_rng(7).normal(size=(3, 4, L))
LABELLED = {
    "cross_entropy": {},
    "focal": {"gamma": 2.0},
    "ldam": {"margins": MARGINS, "scale": 3.0},
    "top_k_hinge": {"k": 2},
    "convex_top_k_hinge": {"k": 3},
    "calibrated_top_k_hinge": {"k": 2},
    "smooth_top_k_hinge": {"k": 3, "tau": 0.7},
    "noised_top_k_hinge": {
        "k": 2,
        "epsilon": 0.5,
        "num_samples": 3,
        "noise": NOISE,
        "margins": MARGINS,
        "scale": 2.0,
    },
    "expected_top_k_hinge": {"k": 2, "epsilon": 0.5, "margins": MARGINS, "scale": 2.0},
    "assume_negative": {},
    "sparsemax_loss": {},
    "relaxed_top_k_cross_entropy": {
        "top_k_weights": [0.2, 0.3, 0.5],
        "method": "odd_even",
        "tau": 0.5,
        "num_candidates": 5,
    },
    "logit_adjusted_cross_entropy": {"class_counts": COUNTS, "tau": 0.8},
    "vector_scaling": {"class_counts": COUNTS, "gamma": 0.3, "tau": 1.2},
    "generalized_cross_entropy": {"q": 0.7},
    "symmetric_cross_entropy": {"alpha": 0.4, "beta": 0.8, "log_zero": -3.0},
}


def batch(rng, size=4, scale=1.5):
    return scale * rng.normal(size=(size, L)), rng.integers(0, L, size)


def test_imports_nothing_of_ours():
    # JAX says only which random numbers a key stands for.
    allowed = {"jax", "numpy", "scipy"} | sys.stdlib_module_names
    for path in Path(reference.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "."]
            else:
                continue
            for name in names:
                assert name.split(".")[0] in allowed or name.startswith("tests.reference")


# Operators


def test_the_papers_illustration():
    noise = [[0.2, -0.1, 0.1, 0.3], [0.1, 0.1, -0.1, 0.1], [-0.1, -0.1, 0.1, -0.1]]
    scores = [2.4, 2.6, 2.3, 0.5]
    value = reference.perturbed_top_k_value(
        None, scores, 2, epsilon=1.0, num_samples=3, noise=noise
    )
    assert value == pytest.approx(7.4 / 3, abs=ROUNDING)
    for epsilon, expected in ((1.0, [1 / 3, 1 / 3, 1 / 3, 0]), (0.1, [1, 0, 0, 0])):
        gradient = reference.perturbed_top_k_value_gradient(scores, 2, epsilon=epsilon, noise=noise)
        close(gradient, expected, atol=ROUNDING)


@pytest.mark.parametrize("k", [1, 3, L])
def test_gradients_of_operators(rng, k):
    scores, noise = rng.normal(size=(2, L)), rng.normal(size=(3, 2, L))
    given = {"epsilon": 0.7, "noise": noise}
    pairs = [
        (lambda s: reference.top_k_value(s, k), reference.top_k_value_gradient(scores, k)),
        (lambda s: reference.top_k_sum(s, k), reference.top_k_sum_gradient(scores, k)),
        (
            lambda s: reference.perturbed_top_k_value(None, s, k, num_samples=3, **given),
            reference.perturbed_top_k_value_gradient(scores, k, **given),
        ),
        (
            lambda s: reference.perturbed_top_k_sum(None, s, k, num_samples=3, **given),
            reference.perturbed_top_k_sum_gradient(scores, k, **given),
        ),
        (
            lambda s: reference.expected_top_k_value(s, k, epsilon=0.7),
            reference.expected_top_k_value_gradient(scores, k, epsilon=0.7),
        ),
    ]
    for function, gradient in pairs:
        differences = reference.finite_difference_gradient(function, scores, STEP)
        close(gradient, differences, atol=DIFFERENCES)


@pytest.mark.parametrize("k", range(1, 6))
def test_expected_value_is_the_integral_over_all_outcomes(rng, k):
    scores, epsilon = rng.normal(size=5), 0.8

    def at_least_k(threshold):
        above = special.ndtr((scores - threshold) / epsilon)
        outcomes = itertools.product([0, 1], repeat=5)
        return sum(
            np.prod(np.where(outcome, above, 1.0 - above))
            for outcome in outcomes
            if sum(outcome) >= k
        )

    low, high = scores.min() - 10 * epsilon, scores.max() + 10 * epsilon
    # The tails beyond 10 eps are below 1e-22; quad stops at 1e-11.
    integral, _ = integrate.quad(at_least_k, low, high, epsabs=1e-11, epsrel=1e-11)
    value = reference.expected_top_k_value(scores, k, epsilon=epsilon)
    assert value == pytest.approx(low + integral, abs=1e-10)


@pytest.mark.parametrize("k", [0, 1, 3, L])
def test_sparse_top_is_feasible_and_nearest(rng, k):
    for scores in (*(scale * rng.normal(size=L) for scale in (0.2, 1.0, 5.0)), np.arange(7.0) % 3):
        projection = reference.sparse_top(scores, k)
        assert projection.min() >= 0.0
        assert projection.max() <= 1.0
        assert projection.sum() == pytest.approx(k, abs=ROUNDING)
        # The nearest point of a polytope makes an obtuse angle with each of its vertices.
        for subset in itertools.combinations(range(L), k):
            vertex = np.zeros(L)
            vertex[list(subset)] = 1.0
            assert (scores - projection) @ (vertex - projection) <= ROUNDING


# Losses


@pytest.mark.parametrize("name", LABELLED)
def test_gradients_of_labelled_losses(rng, name):
    logits, labels = batch(rng)
    loss, gradient = getattr(reference, name), getattr(reference, f"{name}_gradient")
    differences = reference.finite_difference_gradient(
        lambda s: loss(s, labels, **LABELLED[name]), logits, STEP
    )
    computed = gradient(logits, labels, **LABELLED[name])
    assert computed.any()
    close(computed, differences, atol=DIFFERENCES)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("binary_cross_entropy", {}),
        ("sparse_top_loss", {}),
        ("asymmetric", {"gamma_positive": 0.5, "gamma_negative": 3.0, "margin": 0.05}),
        ("asymmetric", {"gamma_positive": 1.0, "gamma_negative": 0.0, "margin": 0.0}),
    ],
)
def test_gradients_of_multi_label_losses(rng, name, parameters):
    logits, targets = batch(rng)[0], rng.integers(0, 2, (4, L))
    targets[0], targets[1] = 0, 1
    loss, gradient = (
        functools.partial(getattr(reference, one), **parameters)
        for one in (name, f"{name}_gradient")
    )
    differences = reference.finite_difference_gradient(lambda s: loss(s, targets), logits, STEP)
    close(gradient(logits, targets), differences, atol=DIFFERENCES)


def test_hinges_by_hand():
    logits, label = [3.0, 1.0, 2.0, 0.0], 1
    # Others: 3, 2, 0. Raised: 4, 1, 3, 1. Sorted: 3, 2, 1, 0.
    by_hand = {
        "top_k_error": [1.0, 1.0, 0.0],
        "top_k_hinge": [3.0, 2.0, 0.0],
        "convex_top_k_hinge": [3.0, 2.5, 8 / 3 - 1.0],
        "calibrated_top_k_hinge": [2.0, 1.0, 0.0],
    }
    for name, values in by_hand.items():
        for k, value in enumerate(values, 1):
            assert getattr(reference, name)(logits, label, k=k) == pytest.approx(value, abs=1e-15)


@pytest.mark.parametrize("k", [1, 3, L - 1])
def test_smooth_hinge_by_recursion_and_by_subsets(rng, k):
    logits, labels = batch(rng)
    for tau, scale in ((1e-3, 1.0), (0.7, 1.0), (1e3, 1.0), (1.0, 1e4), (1e-3, 1e4)):
        # The subsets subtract tau * log-sum-exp as large as k * scale + tau log(35).
        close(
            reference.smooth_top_k_hinge(scale * logits, labels, k=k, tau=tau),
            reference.smooth_top_k_hinge_by_subsets(scale * logits, labels, k=k, tau=tau),
            atol=1e-13 * max(tau, k * scale),
        )


def test_sparse_top_loss_is_the_best_response(rng):
    logits = 1.5 * rng.normal(size=(5, L))
    targets = rng.integers(0, 2, (5, L))
    for row, target, loss in zip(
        logits, targets, reference.sparse_top_loss(logits, targets), strict=True
    ):
        projection = reference.sparse_top(row, target.sum())

        def response(q, row=row, target=target):
            return row @ (q - target) - (q @ q - target.sum()) / 2.0

        assert loss == pytest.approx(response(projection), abs=ROUNDING)
        assert loss >= response(target) == 0.0
    one_hot = np.eye(L)[[3, 0, 1, 6, 2]]
    close(
        reference.sparse_top_loss(logits, one_hot),
        reference.sparsemax_loss(logits, [3, 0, 1, 6, 2]),
        atol=ROUNDING,
    )
    # Zero exactly when every true class leads every other by one, at any offset.
    leading = np.array([1.0, 0, 1, 0, 0, 0, 0])
    for offset in (0.0, 1e4):
        assert reference.sparse_top_loss(leading + offset, leading) == 0.0
        assert reference.sparse_top_loss(0.9 * leading + offset, leading) > 0.0


# Losses of a batch


def test_gradients_of_batch_losses(rng):
    (logits, labels), others = batch(rng), rng.normal(size=(4, L))
    cases = [
        (
            lambda s: reference.expected_positive_regularization(
                s, labels, expected_positives=2.5, beta=0.3
            ),
            logits,
            reference.expected_positive_regularization_gradient(
                logits, labels, expected_positives=2.5, beta=0.3
            ),
        )
    ]
    heads = reference.average_k_gradient(logits, others, labels, k=3, alpha=0.7)
    cases += [
        (lambda s: reference.average_k(s, others, labels, k=3, alpha=0.7), logits, heads[0]),
        (lambda s: reference.average_k(logits, s, labels, k=3, alpha=0.7), others, heads[1]),
    ]
    for function, point, gradient in cases:
        differences = reference.finite_difference_gradient(function, point, STEP)
        close(gradient, differences, atol=DIFFERENCES)


def test_role_by_hand_and_its_stopped_gradient(rng):
    (logits, labels), theta = batch(rng), rng.normal(size=(4, L))
    settings = {"expected_positives": 2.0, "weight": 0.3}
    f, t = reference.sigmoid(logits), reference.sigmoid(theta)
    # Cole et al.: a loss matrix averaged over B L, and the squared gap over L^2.
    matrix = -(t * np.log(f) + (1 - t) * np.log(1 - f) + f * np.log(t) + (1 - f) * np.log(1 - t))
    matrix[np.arange(4), labels] -= (np.log(f) + np.log(t))[np.arange(4), labels]
    gaps = [(p.sum() / 4 - 2.0) ** 2 / L**2 for p in (f, t)]
    theirs = matrix.mean() / 2 + 0.3 * L * sum(gaps) / 2
    ours = reference.role(logits, theta, labels, **settings)
    assert ours == pytest.approx(L * theirs, abs=ROUNDING)
    assert reference.role(theta, logits, labels, **settings) == pytest.approx(ours, abs=ROUNDING)
    gradients = reference.role_gradient(logits, theta, labels, **settings)
    swapped = reference.role_gradient(theta, logits, labels, **settings)
    close(gradients, swapped[::-1], atol=ROUNDING)
    # Differences also see the other side's cross term, -theta sig(f) / n, which is stopped.
    differences = reference.finite_difference_gradient(
        lambda s: reference.role(s, theta, labels, **settings), logits, STEP
    )
    stopped = -theta * f * (1 - f) / 4 / 2
    close(gradients[0], differences - stopped, atol=DIFFERENCES)


def test_average_k_in_loops(rng):
    (logits, labels), proposals = batch(rng), rng.normal(size=(4, L))
    for k in (1, 2, 3, L):
        entries = [
            (-math.exp(reference.log_softmax(proposals)[i, j]), i, j)
            for i, j in itertools.product(range(4), range(L))
            if j != labels[i]
        ]
        chosen = {(i, j) for _, i, j in sorted(entries)[: (k - 1) * 4]}
        candidates = reference.average_k_candidates(proposals, labels, k=k)
        assert {(int(i), int(j)) for i, j in np.argwhere(candidates)} == chosen
        value = reference.cross_entropy(proposals, labels).mean()
        for i, j in itertools.product(range(4), range(L)):
            if j == labels[i]:
                value += np.log1p(np.exp(-logits[i, j])) / 4
            elif (i, j) in chosen:
                value += 0.7 * np.log1p(np.exp(-logits[i, j])) / ((k - 1) * 4)
            else:
                value += 0.7 * np.log1p(np.exp(logits[i, j])) / ((L - k) * 4)
        computed = reference.average_k(logits, proposals, labels, k=k, alpha=0.7)
        assert computed == pytest.approx(value, abs=ROUNDING)


# Sets and metrics
