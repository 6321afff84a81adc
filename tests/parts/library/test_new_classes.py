"""Outlier scores, sets with a symbol for a new class, and selective answers, on known laws."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from topk_jax import sets

# Some dozens of roundings of float32.
ROUNDING = 1e-5


def test_confident_examples_differ():
    """The largest probabilities are all 1 in float32."""
    found = sets.outlier_scores(jnp.array([[40.0, 0.0], [60.0, 0.0]]), kind="probability")
    np.testing.assert_allclose(found, np.exp([-40.0, -60.0]), rtol=ROUNDING)


def test_neighbours_of_thousands_in_a_group_far_from_all_others(rng):
    centres = 500 * np.eye(8)
    known = (centres[rng.integers(8, size=9000)] + rng.normal(size=(9000, 8))).astype(np.float32)
    features = (centres[rng.integers(8, size=50)] + rng.normal(size=(50, 8))).astype(np.float32)
    for k in (1, 5):
        found = sets.neighbor_scores(features, known, k=k)
        expected = reference.neighbor_scores(features, known, k=k)
        # A difference, its square, seven sums and a root.
        np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(np.float32).eps)


def test_the_mean_of_many_features_far_from_0(rng):
    features = (100 + rng.normal(size=(200_000, 2))).astype(np.float32)
    labels = rng.integers(2, size=200_000)
    means, _ = sets.class_gaussian(features, labels, num_classes=2, shrinkage=0.0)
    expected = [features[labels == label].mean(axis=0, dtype=np.float64) for label in (0, 1)]
    # The difference from the first mean, which is nearly 0, is added to it.
    np.testing.assert_allclose(means, expected, rtol=4 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("shrinkage", [0.0, 0.25])
def test_mahalanobis_scores_are_those_of_the_covariance(shrinkage, rng):
    labels = rng.integers(3, size=60) * 2
    mixed = rng.normal(size=(60, 4)) @ rng.normal(size=(4, 4)) + 5 * labels[:, None]
    features = mixed.astype(np.float32)
    means, whitening = sets.class_gaussian(features, labels, num_classes=5, shrinkage=shrinkage)
    wanted = reference.class_gaussian(features, labels, num_classes=5, shrinkage=shrinkage)
    np.testing.assert_allclose(means, wanted[0], rtol=ROUNDING)
    # The condition of the covariance, some hundreds.
    np.testing.assert_allclose(whitening, wanted[1], rtol=1e-3, atol=1e-4)
    found = sets.mahalanobis_scores(features, means, whitening)
    np.testing.assert_allclose(
        found, reference.mahalanobis_scores(features, *wanted), rtol=1e-3, atol=1e-4
    )
    nothing = sets.mahalanobis_scores(features, np.full((2, 4), np.inf, np.float32), whitening)
    assert np.isposinf(nothing).all()


def test_sets_of_a_nan_are_empty():
    members, scores = jnp.ones((2, 3), bool), jnp.array([jnp.nan, 1.0])
    assert sets.open_set(members, scores, known_to=2.0).sum(axis=-1).tolist() == [0, 3]
    assert not sets.open_set(members, scores, known_to=jnp.nan).any()
    assert not sets.open_set(members, scores, known_to=2.0, new_from=jnp.nan).any()


def test_open_sets_are_right_as_often_as_was_asked(rng):
    """Labels of a long tail, of which some are new; each of the three errors is spent."""
    number, error, right, of_new = 60, 0.05, [], []
    shares = 1 / np.arange(1, 201) ** 1.6
    shares /= shares.sum()
    for _ in range(600):
        labels = rng.choice(200, size=number + 1, p=shares)
        # Rare classes are more unusual, and their scores are worse.
        unusual = (np.log(labels + 1) + rng.normal(size=number + 1)).astype(np.float32)
        scores = (rng.gamma(1.0, size=number + 1) + unusual / 4).astype(np.float32)
        old, zeros = slice(0, number), np.zeros(number, int)
        once = np.bincount(labels[old], minlength=200)[labels[old]] == 1
        quantile = sets.conformal_quantile(scores[old], zeros, error=error)
        members = np.array([[scores[-1] <= float(quantile)]])
        limit = sets.conformal_quantile(unusual[old], zeros, error=error)
        least = sets.new_class_threshold(unusual[old], once, error=error)
        chosen = sets.open_set(members, unusual[-1:], known_to=limit, new_from=least)
        is_new = labels[-1] not in labels[:-1]
        right.append(bool(chosen[0, int(is_new)]))
        of_new.append(is_new)
    # The law has many new classes, or nothing would be tested.
    assert np.mean(of_new) > 0.1
    allowed = 2 * math.sqrt(3 * error * (1 - 3 * error) / 600)
    assert np.mean(right) >= 1 - 3 * error - allowed


@pytest.mark.parametrize(
    ("number", "error", "delta"),
    [
        # The p-value of one error more is close above delta; that of the last one is delta itself.
        (1446, "0.2", "1e-12"),
        (6901, "0.1", "1e-12"),
        (2, "0.1", "0.99"),
        (4, "0.3", "0.9163"),
        # The p-value of the last error that is allowed is close below delta.
        (2392, "0.05", "1e-12"),
    ],
)
def test_no_error_too_many_is_allowed_for_any_delta(number, error, delta):
    rate, level = Fraction(error), Fraction(delta)
    p_value, allowed = Fraction(0), -1
    while True:
        wrong = allowed + 1
        chance = math.comb(number, wrong) * rate**wrong * (1 - rate) ** (number - wrong)
        if p_value + chance > level:
            break
        p_value, allowed = p_value + chance, wrong
    confidences = jnp.ones(number)
    for num_errors in (allowed, allowed + 1):
        hits = np.arange(number) >= num_errors
        found = sets.selective_threshold(confidences, hits, error=float(rate), delta=float(level))
        # One that allows no error at all is not tested.
        assert found == (-np.inf if 1 <= num_errors == allowed else np.inf), num_errors


def test_answers_are_seldom_wrong_more_often_than_was_asked(rng):
    """The rate of errors above a confidence c is (1 - c) / 2 on this law, at most 0.2 from 0.6."""
    error, delta, thresholds = 0.2, 0.1, []
    call = jax.jit(lambda c, h: sets.selective_threshold(c, h, error=error, delta=delta))
    for _ in range(400):
        confidences = rng.random(300).astype(np.float32)
        hits = rng.random(300) < confidences
        thresholds.append(float(call(confidences, hits)))
    too_low = np.array(thresholds) < 0.6
    assert too_low.mean() <= delta + 2 * math.sqrt(delta * (1 - delta) / 400)
    # Not by giving no answers.
    assert np.median(thresholds) < 0.8
