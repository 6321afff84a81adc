"""The features below a new head: normalized alike, whatever network they are of."""

import jax
import numpy as np
import pytest

from train.models import feature_norm
from train.models.classifier import Classifier
from train.models.feature_norm import FeatureNorm
from train.models.heads import LinearHead, TwoHeads
from train.models.networks.small import Linear


def normalize(features, norm):
    return np.asarray(FeatureNorm().apply({"batch_stats": norm}, features.astype(np.float32)))


@pytest.mark.parametrize("num_features", [3, 1000])
@pytest.mark.parametrize("factor", [2.0**-20, 1, 2.0**20])
def test_features_have_one_length_whatever_their_number_and_scale(rng, num_features, factor):
    scales = factor * np.exp(rng.uniform(-2, 2, num_features))
    features = scales * rng.normal(2, 1, (500, num_features))
    normalized = normalize(features, feature_norm.measure(features))
    # Rounding of float32: the means are some deviations away from 0.
    np.testing.assert_allclose(normalized.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(np.square(normalized).sum(axis=1).mean(), 100, rtol=1e-4)
    np.testing.assert_allclose(normalized.std(axis=0), 10 / np.sqrt(num_features), rtol=1e-4)


def test_a_feature_that_hardly_varies_is_not_blown_up(rng):
    features = rng.normal(size=(200, 8))
    features[:, 0] = 0.1
    features[:, 1] *= 1e-9
    norm = feature_norm.measure(features)
    # At least one percent of the others' deviation.
    assert norm["scale"].max() < 150 * norm["scale"].min()
    np.testing.assert_allclose(normalize(features, norm)[:, 0], 0, atol=1e-5)
    constant = np.full((5, 3), 0.5, np.float32)
    np.testing.assert_array_equal(normalize(constant, feature_norm.measure(constant)), 0)


@pytest.mark.parametrize("head", [LinearHead, TwoHeads])
def test_a_folded_head_has_the_same_logits(rng, head):
    features = (5 * rng.normal(size=(20, 6)) + 3).astype(np.float32)
    model = Classifier(Linear(axis_name=None), head(4), norm=FeatureNorm())
    params = model.init(jax.random.key(0), features, train=True)["params"]
    norm = feature_norm.measure(features)
    expected = model.apply({"params": params, "batch_stats": {"norm": norm}}, features, train=False)
    plain = {"params": {**params, "head": feature_norm.folded(params["head"], norm)}}
    found = Classifier(Linear(axis_name=None), head(4)).apply(plain, features, train=False)
    # Rounding of float32.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected
    )
