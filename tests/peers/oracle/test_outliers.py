"""Distances to neighbours and to Gaussians equal scikit-learn's."""

import numpy as np
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors

from topk_jax import sets


def test_neighbours(rng):
    known, features = rng.normal(size=(300, 8)), rng.normal(size=(40, 8))
    theirs, _ = NearestNeighbors(n_neighbors=5).fit(known).kneighbors(features)
    found = sets.neighbor_scores(features.astype(np.float32), known.astype(np.float32), k=5)
    # A few dozen roundings of float32.
    np.testing.assert_allclose(found, theirs[:, -1], rtol=1e-5)


def test_gaussians(rng):
    labels = np.arange(200) % 3
    features = (rng.normal(size=(200, 5)) + 4 * labels[:, None]).astype(np.float32)
    means, whitening = sets.class_gaussian(features, labels, num_classes=3, shrinkage=0.0)
    centres = np.stack([features[labels == label].mean(axis=0) for label in range(3)])
    theirs = EmpiricalCovariance(assume_centered=True).fit(features - centres[labels])
    squares = np.stack([theirs.mahalanobis(features - centre) for centre in centres])
    found = sets.mahalanobis_scores(features, means, whitening)
    # A covariance of a condition near 1 and sums of 200 numbers.
    np.testing.assert_allclose(found, np.sqrt(squares.min(axis=0)), rtol=1e-4)
