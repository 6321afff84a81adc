"""Margins and confident joints equal those of cleanlab."""

import numpy as np
import pytest
from cleanlab import count, rank

from topk_jax import metrics

NUM_CLASSES = 7


@pytest.fixture(params=[0.2, 1.0], ids=["confident", "unsure"])
def judged(request, rng):
    """Probabilities of 2,000 examples, and labels of which a third is drawn at random."""
    probabilities = rng.dirichlet(np.full(NUM_CLASSES, request.param), size=2000)
    drawn = [rng.choice(NUM_CLASSES, p=row) for row in probabilities]
    labels = np.where(rng.random(2000) < 2 / 3, drawn, rng.integers(NUM_CLASSES, size=2000))
    return probabilities.astype(np.float32), labels.astype(np.int32)


def test_margins(judged):
    probabilities, labels = judged
    expected = rank.get_normalized_margin_for_each_label(labels, probabilities)
    margins = metrics.label_margins(probabilities, labels)
    # Theirs are rounded in 32 bits, too.
    np.testing.assert_allclose((margins + 1) / 2, expected, atol=2**-22)


def test_confident_joints(judged):
    probabilities, labels = judged
    expected = count.compute_confident_joint(labels, probabilities, calibrate=False)
    joint = np.asarray(metrics.confident_joint(probabilities, labels))
    np.testing.assert_array_equal(joint, expected)
    # Rounded, so that each row has the number of its examples.
    calibrated = count.compute_confident_joint(labels, probabilities)
    counts = np.bincount(labels, minlength=NUM_CLASSES)
    ours = joint * (counts / joint.sum(axis=1))[:, None]
    assert np.abs(ours - calibrated).max() < 1
    assert (joint - np.diag(np.diag(joint))).sum() > 100


def test_thresholds(judged):
    probabilities, labels = judged
    thresholds = count.get_confident_thresholds(labels, probabilities)
    found = np.asarray(metrics.confident_classes(probabilities, thresholds))
    joint = np.zeros((NUM_CLASSES, NUM_CLASSES), int)
    np.add.at(joint, (labels[found >= 0], found[found >= 0]), 1)
    expected = count.compute_confident_joint(labels, probabilities, calibrate=False)
    np.testing.assert_array_equal(np.maximum(joint, np.eye(NUM_CLASSES, dtype=int)), expected)
