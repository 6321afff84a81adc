"""The references of losses against each other, by hand and by finite differences."""

import functools
import itertools
import math

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
        "method": "bitonic",
        "tau": 0.5,
        "num_candidates": 5,
    },
}


def batch(rng, size=4, scale=1.5):
    return scale * rng.normal(size=(size, L)), rng.integers(0, L, size)


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


@pytest.mark.parametrize("name", LABELLED)
def test_broken_examples_are_nan_and_masked_classes_harmless(rng, name):
    logits, labels = batch(rng)
    labels[:] = [0, -1, L, 2]
    clean = getattr(reference, name)(logits, [0, 0, 0, 2], **LABELLED[name])
    logits[3, 5] = np.nan
    losses = getattr(reference, name)(logits, labels, **LABELLED[name])
    gradient = getattr(reference, f"{name}_gradient")(logits, labels, **LABELLED[name])
    np.testing.assert_array_equal(np.isnan(losses), [False, True, True, True])
    np.testing.assert_array_equal(np.isnan(gradient), np.isnan(losses)[:, None] * np.ones((1, L)))
    assert losses[0] == clean[0]
    logits[3, 5] = -np.inf
    labels[:] = [0, 1, 3, 2]
    assert np.isfinite(getattr(reference, name)(logits, labels, **LABELLED[name])).all()
    gradient = getattr(reference, f"{name}_gradient")(logits, labels, **LABELLED[name])
    assert np.isfinite(gradient).all()
    assert gradient[3, 5] == 0.0


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


def test_softmax_losses_by_hand():
    logits = np.log([1.0, 2.0, 5.0])
    assert reference.cross_entropy(logits, 1) == pytest.approx(math.log(4), abs=1e-15)
    focal = 0.75**2 * math.log(4)
    assert reference.focal(logits, 1, gamma=2.0) == pytest.approx(focal, abs=1e-15)
    # With margin log 2 at class 1 and scale 2 the exponentials are 1, (2/2)^2, 25.
    margins = [0.3, math.log(2), 0.1]
    ldam = reference.ldam(logits, 1, margins=margins, scale=2.0)
    assert ldam == pytest.approx(math.log(27), abs=1e-14)
    assert reference.focal(logits, 1, gamma=0.0) == reference.cross_entropy(logits, 1)
    assert reference.ldam(logits, 1, margins=0.0) == reference.cross_entropy(logits, 1)
    # sig is 1/2, 2/3, 5/6.
    negative = math.log(1.5) + (math.log(2) + math.log(6)) / 2
    assert reference.assume_negative(logits, 1) == pytest.approx(negative, abs=1e-15)
    binary = math.log(1.5) + math.log(1.2) + math.log(2)
    computed = reference.binary_cross_entropy(logits, [0, 1, 1])
    assert computed == pytest.approx(binary, abs=1e-15)


def test_class_margins_by_hand():
    margins = reference.class_margins([16, 1, 81], max_margin=0.6)
    close(margins, [0.3, 0.6, 0.2], atol=1e-15)


@pytest.mark.parametrize("k", range(1, L))
def test_smooth_hinge_by_recursion_and_by_subsets(rng, k):
    logits, labels = batch(rng)
    for tau, scale in ((1e-3, 1.0), (0.7, 1.0), (1e3, 1.0), (1.0, 1e4), (1e-3, 1e4)):
        # The subsets subtract tau * log-sum-exp as large as k * scale + tau log(35).
        close(
            reference.smooth_top_k_hinge(scale * logits, labels, k=k, tau=tau),
            reference.smooth_top_k_hinge_by_subsets(scale * logits, labels, k=k, tau=tau),
            atol=1e-13 * max(tau, k * scale),
        )


def test_smooth_hinge_identities(rng):
    logits, labels = batch(rng)
    with_margin = reference.ldam(logits, labels, margins=1.0)
    smooth = reference.smooth_top_k_hinge(logits, labels, k=1, tau=1.0)
    close(smooth, with_margin, atol=ROUNDING)
    for k, tau in itertools.product((1, 3, L - 1), (1e-4, 0.3)):
        others = np.array([np.delete(row, y) for row, y in zip(logits, labels, strict=True)])
        true = np.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        hard = np.maximum(0.0, 1.0 + (reference.top_k_value(others, k) - true) / k)
        smooth = reference.smooth_top_k_hinge(logits, labels, k=k, tau=tau)
        # A log-sum-exp of m terms exceeds their maximum by at most log m: of all the k-sets above
        # (upwards), of those that contain y below (downwards).
        assert (smooth <= hard + tau * math.log(math.comb(L, k)) + ROUNDING).all()
        assert (smooth >= hard - tau * math.log(math.comb(L - 1, k - 1)) - ROUNDING).all()
        shifted = reference.smooth_top_k_hinge(logits + 50.0, labels, k=k, tau=tau)
        close(shifted, smooth, atol=ROUNDING)


def test_masked_class_is_as_if_removed(rng):
    logits, labels = rng.normal(size=(3, L)), np.array([0, 1, 2])
    masked = np.append(logits, np.full((3, 1), -np.inf), axis=-1)
    for name, parameters in LABELLED.items():
        if name not in ("assume_negative", "noised_top_k_hinge"):
            loss = getattr(reference, name)
            close(
                loss(masked, labels, **parameters), loss(logits, labels, **parameters), atol=1e-14
            )
    # No set of 3 without y is left among 2 others: the limit is 0, and so is its gradient.
    lonely = np.where(np.arange(L) < 3, 0.0, -np.inf)
    assert reference.smooth_top_k_hinge(lonely, 0, k=3, tau=1.0) == 0.0
    assert not reference.smooth_top_k_hinge_gradient(lonely, 0, k=3, tau=1.0).any()
    for name, parameters in LABELLED.items():
        if name != "noised_top_k_hinge":
            assert getattr(reference, name)(lonely, L - 1, **parameters) == np.inf
    for name in ("top_k_hinge", "calibrated_top_k_hinge", "convex_top_k_hinge"):
        assert getattr(reference, name)(lonely, L - 1, k=5) == np.inf


def test_noised_and_expected_hinges_become_calibrated(rng):
    logits, labels = batch(rng)
    calibrated = reference.calibrated_top_k_hinge(logits, labels, k=2)
    noised = reference.noised_top_k_hinge(
        logits, labels, k=2, epsilon=0.0, num_samples=3, noise=NOISE
    )
    expected = reference.expected_top_k_hinge(logits, labels, k=2, epsilon=0.0)
    close(noised, calibrated, atol=ROUNDING)
    np.testing.assert_array_equal(expected, calibrated)
    # Each example meets its own noise.
    settings = {"k": 2, "epsilon": 0.5, "margins": MARGINS, "scale": 2.0}
    together = reference.noised_top_k_hinge(logits, labels, noise=NOISE, **settings)
    for index, loss in enumerate(together):
        alone = reference.noised_top_k_hinge(
            logits[index], labels[index], noise=NOISE[:, index], **settings
        )
        assert alone == loss


def test_noised_hinge_averages_to_the_expected_one(rng):
    logits, noise = np.array([0.3, 0.1, -0.2, 0.4, 0.0]), rng.normal(size=(20_000, 5))
    values = -np.sort(-(logits + noise), axis=-1)[:, 2]
    # Five standard errors of the mean.
    bound = 5 * values.std() / math.sqrt(len(values))
    value = reference.expected_top_k_value(logits, 3, epsilon=1.0)
    assert abs(values.mean() - value) < bound


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
