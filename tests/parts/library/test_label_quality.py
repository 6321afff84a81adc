"""Margins of labels and confident learning, by hand and of absent classes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from topk_jax import metrics


def test_masked_classes_and_logits(rng):
    logits = np.array([[1.0, -np.inf, 3.0], [2.0, -np.inf, -np.inf], [np.inf, 0, 0]], np.float32)
    margins = metrics.label_margins(logits, np.array([0, 0, 1]))
    np.testing.assert_array_equal(margins, [-2, np.inf, np.nan])
    # Of logits, it is the logarithm of a ratio of probabilities.
    logits = rng.normal(size=(50, 4)).astype(np.float32)
    labels = rng.integers(4, size=50)
    of_logarithms = metrics.label_margins(jax.nn.log_softmax(logits), labels)
    # A logarithm of at most 8 is good to 2**-21, and there are two.
    np.testing.assert_allclose(metrics.label_margins(logits, labels), of_logarithms, atol=2**-20)


def test_a_threshold_is_reached_but_for_the_rounding_of_a_mean():
    probabilities = jnp.array([[0.5, 0.5 - 1e-7], [0.5, 0.49], [jnp.nan, 1.0]])
    found = metrics.confident_classes(probabilities, np.array([0.6, 0.5]))
    np.testing.assert_array_equal(found, [1, -1, -1])


def test_many_examples_are_as_confident_as_few():
    labels = np.arange(40_000) % 2
    probabilities = np.abs(np.eye(2, dtype=np.float32)[labels] - np.float32(1e-4))
    joint = metrics.confident_joint(probabilities, labels)
    np.testing.assert_array_equal(joint, [[20_000, 0], [0, 20_000]])


def test_a_class_without_examples_has_a_row_of_the_identity(rng):
    probabilities = rng.dirichlet(np.ones(5), size=400).astype(np.float32)
    labels = rng.choice([0, 2, 3, 4], size=400)
    joint = np.asarray(metrics.confident_joint(probabilities, labels))
    np.testing.assert_array_equal(joint, reference.confident_joint(probabilities, labels))
    assert joint[1].tolist() == [0, 1, 0, 0, 0]
    nobody = metrics.confident_joint(np.zeros((0, 3), np.float32), np.zeros(0, np.int32))
    np.testing.assert_array_equal(nobody, np.eye(3))


def test_one_class_has_no_margin():
    with pytest.raises(ValueError, match="scores must have at least two classes"):
        metrics.label_margins(np.ones((3, 1), np.float32), np.zeros(3, np.int32))
