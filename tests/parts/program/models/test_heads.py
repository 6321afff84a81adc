"""Heads: what they compute, how they start, and that no features make a gradient unsafe."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train.models import HEADS
from train.models.heads import CosineHead, TwoLogits

NUM_FEATURES, NUM_CLASSES = 6, 5


def started(name, key):
    head = HEADS[name](NUM_CLASSES)
    return head, head.init(key, jnp.zeros((1, NUM_FEATURES)))["params"]


@pytest.fixture
def features(rng):
    return rng.normal(size=(8, NUM_FEATURES)).astype(np.float32)


def affine(features, params):
    kernel, bias = (np.asarray(params[name], np.float64) for name in ("kernel", "bias"))
    return features @ kernel + bias


def with_biases(params, rng):
    return jax.tree.map(lambda leaf: leaf + rng.normal(size=leaf.shape).astype(np.float32), params)


def test_a_linear_head_is_affine(features, key, rng):
    head, params = started("linear", key)
    assert not np.any(params["Dense_0"]["bias"])
    params = with_biases(params, rng)
    logits = head.apply({"params": params}, features)
    # Float32 rounding of sums of six products.
    np.testing.assert_allclose(logits, affine(features, params["Dense_0"]), rtol=1e-5, atol=1e-5)


def test_a_linear_head_starts_with_logits_of_the_features_scale(key):
    kernel = HEADS["linear"](100).init(key, jnp.zeros((1, 440)))["params"]["Dense_0"]["kernel"]
    # The deviation of 44,000 numbers is known within 0.34 %; six times that.
    assert abs(np.asarray(kernel).std() * np.sqrt(440) - 1) < 0.02


def test_two_heads_are_two_affine_functions(features, key, rng):
    head, params = started("two_heads", key)
    assert not any(np.any(params[name]["bias"]) for name in ("labels", "proposals"))
    assert not np.array_equal(params["labels"]["kernel"], params["proposals"]["kernel"])
    params = with_biases(params, rng)
    outputs = head.apply({"params": params}, features)
    assert isinstance(outputs, TwoLogits)
    for logits, name in ((outputs.logits, "labels"), (outputs.proposal_logits, "proposals")):
        # As for one head.
        np.testing.assert_allclose(logits, affine(features, params[name]), rtol=1e-5, atol=1e-5)


def test_a_cosine_head_gives_cosines(features, key, rng):
    head, params = started("cosine", key)
    assert set(params) == {"class_vectors"}
    params = with_biases(params, rng)
    vectors = np.asarray(params["class_vectors"], np.float64)
    lengths = np.linalg.norm(features, axis=1)[:, None] * np.linalg.norm(vectors, axis=0)
    expected = features.astype(np.float64) @ vectors / lengths
    for scale in (1e-6, 1.0, 1e6):
        cosines = head.apply({"params": params}, features * np.float32(scale))
        # Float32 rounding of numbers below 1.
        np.testing.assert_allclose(cosines, expected, atol=1e-6)


def test_a_scaled_cosine_head_multiplies_cosines(features, key):
    _, params = started("cosine", key)
    cosines = CosineHead(NUM_CLASSES).apply({"params": params}, features)
    fixed = CosineHead(NUM_CLASSES, scale=20.0)
    assert jax.tree.structure(fixed.init(key, features)["params"]) == jax.tree.structure(params)
    # One product of float32.
    np.testing.assert_allclose(fixed.apply({"params": params}, features), 20 * cosines, rtol=1e-6)
    learnt = CosineHead(NUM_CLASSES, scale=20.0, learn_scale=True)
    started_learnt = learnt.init(key, features)["params"]
    assert started_learnt.pop("log_scale") == 0
    np.testing.assert_array_equal(started_learnt["class_vectors"], params["class_vectors"])

    def logits(log_scale):
        return learnt.apply({"params": {**params, "log_scale": log_scale}}, features)

    half = np.float32(np.log(0.5))
    # The logarithm and its exponential are rounded.
    np.testing.assert_allclose(logits(half), 10 * cosines, rtol=1e-6)
    # d (scale e^t cosine) / dt is the logit.
    np.testing.assert_allclose(jax.jacfwd(logits)(half), 10 * cosines, rtol=1e-6)


@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-13])
def test_features_of_no_length_are_harmless(features, length, key):
    head, params = started("cosine", key)
    features[2] *= np.float32(length)

    def total(features, params):
        return jnp.square(head.apply({"params": params}, features) - 0.5).sum()

    by_features, by_params = jax.grad(total, argnums=(0, 1))(features, params)
    np.testing.assert_array_equal(by_features[2], 0)
    assert np.all(np.isfinite(by_params["class_vectors"]))
    others = np.arange(len(features)) != 2
    # A cosine does not change with the length of the features: the gradient is orthogonal to them.
    np.testing.assert_allclose((by_features * features).sum(axis=1), 0, atol=1e-5)
    assert np.all(np.abs(by_features[others]).max(axis=1) > 1e-3)
    np.testing.assert_array_equal(head.apply({"params": params}, features)[2], 0)


def test_a_nan_feature_makes_its_own_cosines_nan(features, key):
    """Features of 0 in its place would hide a fault of the network."""
    head, params = started("cosine", key)
    features[1, 2] = np.nan
    cosines = np.isnan(head.apply({"params": params}, features))
    np.testing.assert_array_equal(cosines, np.indices(cosines.shape)[0] == 1)
