"""The references of operators against brute force, closed forms and differences."""

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


def test_imports_nothing_of_ours():
    allowed = {"numpy", "scipy"} | sys.stdlib_module_names
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


def test_values_are_differences_of_sums_along_any_axis(rng):
    scores, noise = rng.normal(size=(3, L, 2)), rng.normal(size=(4, 3, L, 2))
    settings = {"epsilon": 0.7, "num_samples": 4, "noise": noise, "axis": 1}
    for k in range(2, L + 1):
        upper = reference.perturbed_top_k_sum(None, scores, k, **settings)
        lower = reference.perturbed_top_k_sum(None, scores, k - 1, **settings)
        value = reference.perturbed_top_k_value(None, scores, k, **settings)
        close(value, upper - lower, atol=ROUNDING)
        hard = reference.top_k_sum(scores, k, axis=1) - reference.top_k_sum(scores, k - 1, axis=1)
        close(reference.top_k_value(scores, k, axis=1), hard, atol=ROUNDING)


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


def test_equal_scores_go_to_the_lower_index():
    np.testing.assert_array_equal(reference.top_k_value_gradient([1, 2, 2, 2], 2), [0, 0, 1, 0])
    np.testing.assert_array_equal(reference.top_k_sum_gradient([1, 2, 2, 2], 2), [0, 1, 1, 0])
    np.testing.assert_array_equal(reference.top_k_set([1, 2, 2, 2], k=2), [0, 1, 1, 0])


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


def test_expected_value_of_two_scores_has_a_closed_form():
    first, second, spread = 0.9, 0.2, 0.8 * math.sqrt(2.0)
    ratio = (first - second) / spread
    density = math.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    largest = first * special.ndtr(ratio) + second * special.ndtr(-ratio) + spread * density
    for k, expected in ((1, largest), (2, first + second - largest)):
        value = reference.expected_top_k_value([first, second], k, epsilon=0.8)
        assert value == pytest.approx(expected, abs=ROUNDING)
    gradient = reference.expected_top_k_value_gradient([first, second], 1, epsilon=0.8)
    close(gradient, special.ndtr([ratio, -ratio]), atol=ROUNDING)


def test_expected_value_of_many_equal_scores():
    # P(N >= k) of L equal coins is a regularised incomplete beta function.
    for size, k in ((1000, 1), (1000, 5), (300, 150)):
        integral, _ = integrate.quad(
            lambda t: special.betainc(k, size - k + 1, special.ndtr(-t)),  # noqa: B023
            -12.0,
            12.0,
            epsabs=1e-11,
            epsrel=1e-11,
            limit=200,
        )
        value = reference.expected_top_k_value(np.full(size, 3.0), k, epsilon=0.25)
        # quad stops at 1e-11; a thousand products of rounded chances leave 1e-13.
        assert value == pytest.approx(3.0 + 0.25 * (integral - 12.0), abs=1e-10)


def test_expected_values_share_out_the_scores(rng):
    scores = rng.normal(size=L)
    values = [reference.expected_top_k_value(scores, k, epsilon=0.6) for k in range(1, L + 1)]
    gradients = np.array(
        [reference.expected_top_k_value_gradient(scores, k, epsilon=0.6) for k in range(1, L + 1)]
    )
    assert sum(values) == pytest.approx(scores.sum(), abs=ROUNDING)
    close(gradients.sum(axis=0), 1.0, atol=ROUNDING)
    close(gradients.sum(axis=1), 1.0, atol=ROUNDING)
    np.testing.assert_array_equal(
        reference.expected_top_k_value(scores, 3, epsilon=0.0), reference.top_k_value(scores, 3)
    )
    masked = reference.expected_top_k_value(np.append(scores, -np.inf), 3, epsilon=0.6)
    assert masked == pytest.approx(values[2], abs=ROUNDING)


def test_polynomials_of_integers_are_exact():
    numbers = [3, 1, 7, 2, 5, 11]
    exact = [1] + [
        sum(math.prod(subset) for subset in itertools.combinations(numbers, degree))
        for degree in range(1, 7)
    ]
    computed = reference.log_symmetric_polynomials(np.log(numbers), 6)
    close(computed, np.log(exact), atol=ROUNDING)


def test_polynomials_by_recursion_and_by_subsets(rng):
    for scale in (1e-6, 1.0, 1e4):
        values = scale * rng.normal(size=(2, L, 3))
        # Float64 keeps 16 digits of sums of up to seven values of this scale.
        close(
            reference.log_symmetric_polynomials(values, L, axis=1),
            reference.log_symmetric_polynomials_by_subsets(values, L, axis=1),
            atol=ROUNDING * max(scale, 1.0),
        )
    row = np.append(values[0, :, 0], -np.inf)
    assert reference.log_symmetric_polynomials(row, L + 1)[-1] == -np.inf


def test_gradient_of_polynomials(rng):
    values = rng.normal(size=L)
    differences = reference.finite_difference_jacobian(
        lambda x: reference.log_symmetric_polynomials(x, L), values, STEP
    )
    gradient = reference.log_symmetric_polynomials_gradient(values, L)
    close(gradient, differences, atol=DIFFERENCES)
    # Each is homogeneous of its degree in exp(x).
    close(gradient.sum(axis=1), range(L + 1), atol=ROUNDING)


@pytest.mark.parametrize("k", range(L + 1))
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


def test_sparse_top_of_one_is_sparsemax(rng):
    scores = rng.normal(size=L)
    ordered = np.sort(scores)[::-1]
    thresholds = (np.cumsum(ordered) - 1.0) / np.arange(1, L + 1)
    expected = np.maximum(scores - thresholds[ordered > thresholds][-1], 0.0)
    close(reference.sparse_top(scores, 1), expected, atol=ROUNDING)


def test_sparse_top_takes_one_k_an_example_and_any_axis(rng):
    scores = rng.normal(size=(3, L))
    together = reference.sparse_top(scores, np.array([1, 4, 2]))
    for row, k, expected in zip(scores, (1, 4, 2), together, strict=True):
        np.testing.assert_array_equal(reference.sparse_top(row, k), expected)
    np.testing.assert_array_equal(reference.sparse_top(scores.T, [1, 4, 2], axis=0), together.T)


@pytest.mark.parametrize("k", [1, 3, 6])
def test_jacobian_of_sparse_top(rng, k):
    scores = rng.normal(size=L)
    differences = reference.finite_difference_jacobian(
        lambda s: reference.sparse_top(s, k), scores, STEP
    )
    jacobian = reference.sparse_top_jacobian(scores, k)
    close(jacobian, differences, atol=DIFFERENCES)
    separated = 2.0 * np.arange(L)
    np.testing.assert_array_equal(reference.sparse_top_jacobian(separated, k), np.zeros((L, L)))
