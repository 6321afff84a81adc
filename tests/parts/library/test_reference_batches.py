"""The references of losses of a batch, of sets and of metrics: by hand and brute force."""

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tests import reference

close = functools.partial(np.testing.assert_allclose, rtol=0)
L = 7
# Both sides are float64 and a few hundred operations on numbers below 1e2 apart.
ROUNDING = 1e-12
# Central differences with a step of 1e-5: third derivatives of order 1 to 10 give 1e-10 to 1e-9,
# cancellation 1e-16 / 1e-5 times values below 100 gives 1e-9.
STEP, DIFFERENCES = 1e-5, 1e-8


def batch(rng, size=4, scale=1.5):
    return scale * rng.normal(size=(size, L)), rng.integers(0, L, size)


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


def test_expected_positive_regularization_by_hand():
    logits = np.log([[1.0, 2.0, 5.0], [1.0, 1.0, 1.0]])
    value = reference.expected_positive_regularization(
        logits, [1, 0], expected_positives=1.25, beta=2.0
    )
    expected = (math.log(1.5) + math.log(2)) / 2 + 2.0 * (1.75 - 1.25) ** 2
    assert value == pytest.approx(expected, abs=1e-15)


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


def test_candidates_go_to_the_lower_flattened_index():
    candidates = reference.average_k_candidates(np.zeros((3, 4)), [0, 1, 2], k=2)
    np.testing.assert_array_equal(candidates.reshape(-1), [0, 1, 1, 1] + [0] * 8)
    masked = np.where(np.arange(4) < 2, 0.0, -np.inf) * np.ones((3, 1))
    everything = reference.average_k_candidates(masked, [0, 1, 1], k=4)
    np.testing.assert_array_equal(everything, np.arange(4) != np.array([[0], [1], [1]]))
    assert np.isfinite(reference.average_k(masked, masked, [0, 1, 1], k=2, alpha=1.0))
    # A fractional size rounds down, read as a decimal: in doubles 1.15 * 100 falls short of 115.
    many = reference.average_k_candidates(np.zeros((100, 4)), np.zeros(100, int), k=1.15)
    assert many.sum() == 15


def test_masked_class_is_harmless_in_a_batch(rng):
    (logits, labels), others = batch(rng), rng.normal(size=(4, L))
    labels[:], others[:, 5] = 0, 9.0
    logits[:, 5] = -np.inf
    assert reference.average_k_candidates(others, labels, k=2)[:, 5].all()
    positives = {"expected_positives": 2.0}
    value = reference.expected_positive_regularization(logits, labels, beta=0.5, **positives)
    kept = np.arange(L) != 5
    without = reference.expected_positive_regularization(
        logits[:, kept], labels, beta=0.5, **positives
    )
    assert value == pytest.approx(without, abs=ROUNDING)
    gradients = [
        reference.expected_positive_regularization_gradient(logits, labels, beta=0.5, **positives),
        reference.average_k_gradient(logits, others, labels, k=2, alpha=1.0)[0],
        reference.role_gradient(logits, others, labels, weight=1.0, **positives)[0],
        reference.role_gradient(others, logits, labels, weight=1.0, **positives)[1],
    ]
    for gradient in gradients:
        assert np.isfinite(gradient).all()
        assert not gradient[:, 5].any()
    assert np.isfinite(reference.average_k(logits, others, labels, k=2, alpha=1.0))
    assert np.isfinite(reference.role(logits, others, labels, weight=1.0, **positives))
    assert np.isfinite(reference.role(others, logits, labels, weight=1.0, **positives))
    assert np.isfinite(reference.role(logits, logits, labels, weight=1.0, **positives))


def test_broken_batches_are_nan(rng):
    logits, labels = batch(rng)
    regularization = {"expected_positives": 2.0, "beta": 1.0}
    for index, value in ((0, L), (1, -1)):
        wrong = labels.copy()
        wrong[index] = value
        for loss in (
            reference.expected_positive_regularization(logits, wrong, **regularization),
            reference.average_k(logits, logits, wrong, k=2, alpha=1.0),
            reference.role(logits, logits, wrong, expected_positives=2.0, weight=1.0),
        ):
            assert np.isnan(loss)


def test_average_k_threshold_by_hand():
    entries = np.array([[0.5, 0.3, 0.2], [0.75, 0.25, 0.0]])
    for k, expected in ((1, 0.4), (2, 0.225), (3, 0.0), (1.5, 0.275)):
        assert reference.average_k_threshold(entries, k=k) == pytest.approx(expected, abs=1e-15)
    tied = np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
    assert reference.average_k_threshold(tied, k=2) == 0.5
    assert reference.average_k_threshold(np.full((2, 4), 0.25), k=2) == np.inf
    # Two neighbouring doubles do not have a midpoint of their own.
    close = np.array([[0.25, np.nextafter(0.25, 1.0), 0.0]])
    assert reference.average_k_threshold(close, k=1) == close[0, 1]


def test_average_k_sets_never_exceed_k(rng):
    for decimals in (1, 2, 15):
        raw = np.round(rng.dirichlet(np.full(L, 0.3), size=9), decimals)
        calibrator = reference.AverageKCalibrator(2, num_examples=9)
        calibrator.update(raw[:4])
        calibrator.update(raw[4:])
        threshold = calibrator.threshold()
        assert threshold == reference.average_k_threshold(raw, k=2)
        chosen = reference.threshold_set(raw, threshold)
        assert chosen.sum() <= 2 * 9
        assert chosen.sum() == 2 * 9 or len(np.unique(raw)) < raw.size


def test_adaptive_set_is_the_smallest(rng):
    for row in rng.dirichlet(np.full(5, 0.5), size=10):
        for error in (0.05, 0.3, 0.9):
            chosen = reference.adaptive_set(row, error=error)
            assert row[chosen].sum() >= 1 - error
            smaller = itertools.combinations(range(5), chosen.sum() - 1)
            assert all(row[list(subset)].sum() < 1 - error for subset in smaller)
    np.testing.assert_array_equal(reference.adaptive_set([0.25] * 4, error=0.5), [1, 1, 0, 0])
    assert not reference.adaptive_set([0.5, np.nan, 0.5], error=0.5).any()


def test_average_error_threshold_is_the_largest(rng):
    probabilities = np.round(rng.dirichlet(np.full(L, 0.5), size=6), 2)

    def missed(threshold):
        return probabilities[probabilities < threshold].sum() / 6

    for error in (0.0, 0.03, 0.2, 0.6):
        threshold = reference.average_error_threshold(probabilities, error=error)
        assert missed(threshold) <= error + ROUNDING
        assert missed(np.nextafter(threshold, 2.0)) > error
    assert reference.average_error_threshold(probabilities, error=1.5) == np.inf


def test_conformal_threshold_covers_what_it_promises():
    # Ten exchangeable scores: each in turn is the test example, the other nine calibrate.
    true = np.linspace(0.05, 0.95, 10)
    table = np.stack([true, 1 - true], axis=-1)
    labels = np.zeros(10, int)
    for error in ("0.1", "0.25", "0.3", "0.7"):
        covered = 0
        for index in range(10):
            rest = np.delete(np.arange(10), index)
            threshold = reference.conformal_threshold(table[rest], labels[rest], error=float(error))
            covered += true[index] >= threshold
        assert (
            1 - Fraction(error)
            <= Fraction(int(covered), 10)
            <= 1 - Fraction(error) + Fraction(1, 10)
        )
    # In doubles 10 * (1 - 0.7) exceeds 3; read as decimals, the third largest is meant.
    assert reference.conformal_threshold(table[:9], labels[:9], error=0.7) == true[6]
    assert reference.conformal_threshold(table, labels, error=0.05) == -np.inf
    assert np.isnan(reference.conformal_threshold(table, labels + 2, error=0.5))


def test_top_k_hits_by_rank():
    scores = np.array([[1.0, 1, 1, 1]] * 4 + [[np.nan, 2, 1, 0]] * 2 + [[4.0, 3, 2, 1]] * 4)
    labels = np.array([0, 1, 2, 3, 1, 0, 1, 2, 4, -1])
    hits = reference.top_k_hits(scores, labels, k=2)
    np.testing.assert_array_equal(hits, [1, 1, 0, 0, 0, 0, 1, 0, 0, 0])
    hits = reference.threshold_hits(scores, labels, 1.0)
    np.testing.assert_array_equal(hits, [1, 1, 1, 1, 1, 0, 1, 1, 0, 0])


def test_hits_are_the_sets_that_hold_the_label(rng):
    scores, labels = rng.integers(0, 4, (50, L)).astype(float), rng.integers(0, L, 50)
    for k in (1, 3, L):
        inside = reference.top_k_set(scores, k=k)[np.arange(50), labels]
        np.testing.assert_array_equal(reference.top_k_hits(scores, labels, k=k), inside)
        assert (inside >= (reference.top_k_value(scores, k) < scores[np.arange(50), labels])).all()


def test_metrics_by_hand():
    hits = np.array([1, 0, 1, 1, 0, 1, 1], bool)
    labels = np.array([0, 0, 1, 2, 3, 0, 5])
    where = np.array([1, 1, 1, 1, 1, 0, 1], bool)
    assert reference.accuracy(hits) == pytest.approx(5 / 7)
    assert reference.accuracy(hits, where) == pytest.approx(4 / 6)
    # By class: 1/2, 1, 1, 0, none, 1.
    macro = reference.macro_accuracy(hits, labels, num_classes=6, where=where)
    assert macro == pytest.approx(3.5 / 5)
    shots = reference.shot_accuracy(
        hits, labels, class_counts=[19, 20, 101, 100, 5, 300], where=where
    )
    assert shots == {"few": 0.5, "medium": 0.5, "many": 1.0}
    nothing = np.zeros(7, bool)
    assert np.isnan(reference.accuracy(hits, nothing))
    assert np.isnan(reference.macro_accuracy(hits, labels, num_classes=6, where=nothing))
    empty = reference.shot_accuracy(hits, labels, class_counts=np.full(6, 50))
    assert np.isnan(empty["few"])
    assert np.isnan(empty["many"])
