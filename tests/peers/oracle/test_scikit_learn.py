"""Metrics of several labels, and areas under ROC curves, equal those of scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from topk_jax import metrics

NUM_EXAMPLES, NUM_CLASSES = 400, 12
# Sums of 400 float32 numbers on a tree, and quotients.
CLOSE = {"rtol": 0, "atol": 16 * 2**-24}


@pytest.fixture(params=[False, True], ids=["plain", "weights"])
def weights(request, rng):
    return rng.random(NUM_EXAMPLES) if request.param else None


def test_f1(rng, weights):
    targets = rng.random((NUM_EXAMPLES, NUM_CLASSES)) < 0.2
    chosen = (rng.random(targets.shape) < 0.2) | (targets & (rng.random(targets.shape) < 0.7))
    targets[:, 5] = chosen[:, 5] = False
    options = {"sample_weight": weights}
    counts = metrics.tally_f1(chosen, targets, weights=weights)
    ours = counts.macro_mean()
    theirs = f1_score(targets, chosen, average="macro", zero_division=np.nan, **options)
    np.testing.assert_allclose(ours, theirs, **CLOSE)
    micro = counts.mean()
    np.testing.assert_allclose(
        micro, f1_score(targets, chosen, average="micro", **options), **CLOSE
    )
    by_example = metrics.tally(metrics.example_f1(chosen, targets), weights=weights).mean()
    theirs = f1_score(targets, chosen, average="samples", zero_division=1.0, **options)
    np.testing.assert_allclose(by_example, theirs, **CLOSE)


def test_mean_average_precision(rng, weights):
    """With ties, and in any order of the examples."""
    targets = rng.random((NUM_EXAMPLES, NUM_CLASSES)) < 0.2
    scores = (targets + rng.normal(size=targets.shape)).round(1).astype(np.float32)
    ours = metrics.mean_average_precision(scores, targets, weights=weights)
    theirs = average_precision_score(targets, scores, average="macro", sample_weight=weights)
    np.testing.assert_allclose(ours, theirs, **CLOSE)


def test_auroc(rng, weights):
    positives = rng.random(NUM_EXAMPLES) < 0.3
    scores = (positives + rng.normal(size=NUM_EXAMPLES)).round(1).astype(np.float32)
    ours = metrics.auroc(scores, positives, weights=weights)
    theirs = roc_auc_score(positives, scores, sample_weight=weights)
    np.testing.assert_allclose(ours, theirs, **CLOSE)
