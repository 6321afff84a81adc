"""The features below a new head: normalized alike, whatever network they are of."""

import jax
import numpy as np
import pytest

from train.models import feature_norm
from train.models.classifier import Classifier
from train.models.feature_norm import FeatureNorm
from train.models.heads import LinearHead, TwoHeads
from train.models.networks.linear import Linear


def normalize(features, norm):
    return np.asarray(FeatureNorm().apply({"batch_stats": norm}, features.astype(np.float32)))


@pytest.mark.parametrize("num_features", [3, 100, 1000])
def test_features_have_one_length_however_many_there_are(rng, num_features):
    scales = np.exp(rng.uniform(-2, 2, num_features))
    features = scales * rng.normal(2, 1, (500, num_features))
    normalized = normalize(features, feature_norm.measure(np.split(features, [100, 101])))
    # Rounding of float32: the means are some deviations away from 0.
    np.testing.assert_allclose(normalized.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(np.square(normalized).sum(axis=1).mean(), 100, rtol=1e-4)
    np.testing.assert_allclose(normalized.std(axis=0), 10 / np.sqrt(num_features), rtol=1e-4)


def test_the_scale_of_a_network_is_gone(rng):
    features = rng.normal(size=(200, 8)) ** 3
    # A power of two, so there is no rounding.
    expected = normalize(features, feature_norm.measure([features]))
    for scale in (2.0**-20, 2.0**20):
        found = normalize(scale * features, feature_norm.measure([scale * features]))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_feature_that_hardly_varies_is_not_blown_up(rng):
    features = rng.normal(size=(200, 8))
    features[:, 0] = 0.1
    features[:, 1] *= 1e-9
    norm = feature_norm.measure([features])
    # At least one percent of the others' deviation.
    assert norm["scale"].max() < 150 * norm["scale"].min()
    np.testing.assert_array_equal(normalize(features, norm)[:, 0], 0)
    np.testing.assert_allclose(np.square(normalize(features, norm)).sum(axis=1).mean(), 100, 1e-4)
    # All of them alike.
    constant = np.full((5, 3), 0.1, np.float32)
    np.testing.assert_array_equal(normalize(constant, feature_norm.measure([constant])), 0)


def test_places_of_an_image_count_singly(rng):
    features = rng.normal(size=(10, 3, 3, 4))
    norm, of_rows = (feature_norm.measure([one]) for one in (features, features.reshape(-1, 4)))
    for name, value in of_rows.items():
        np.testing.assert_array_equal(norm[name], value)
    assert normalize(features, norm).shape == features.shape


@pytest.mark.parametrize("head", [LinearHead, TwoHeads])
def test_a_folded_head_has_the_same_logits(rng, head):
    features = (5 * rng.normal(size=(20, 6)) + 3).astype(np.float32)
    model = Classifier(Linear(None), head(4), norm=FeatureNorm())
    variables = model.init(jax.random.key(0), features, train=True)
    np.testing.assert_array_equal(variables["batch_stats"]["norm"]["scale"], 1)
    norm = feature_norm.measure([features])
    params = variables["params"]
    expected = model.apply({"params": params, "batch_stats": {"norm": norm}}, features, train=False)
    plain = {"params": {**params, "head": feature_norm.folded(params["head"], norm)}}
    found = Classifier(Linear(None), head(4)).apply(plain, features, train=False)
    # Rounding of float32.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected
    )
