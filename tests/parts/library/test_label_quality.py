"""Wrong labels and votes: margins, confident learning, and whom to trust of several people."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from topk_jax import metrics


def test_margins_of_masked_classes():
    logits = np.array([[1.0, -np.inf, 3.0], [2.0, -np.inf, -np.inf], [np.inf, 0, 0]], np.float32)
    margins = metrics.label_margins(logits, np.array([0, 0, 1]))
    np.testing.assert_array_equal(margins, [-2, np.inf, np.nan])


def test_a_threshold_is_reached_but_for_the_rounding_of_a_mean():
    probabilities = jnp.array([[0.5, 0.5 - 1e-7], [0.5, 0.49], [jnp.nan, 1.0]])
    found = metrics.confident_classes(probabilities, np.array([0.6, 0.5]))
    np.testing.assert_array_equal(found, [1, -1, -1])


def test_many_examples_are_as_confident_as_few():
    labels = np.arange(40_000) % 2
    probabilities = np.abs(np.eye(2, dtype=np.float32)[labels] - np.float32(1e-4))
    joint = metrics.confident_joint(probabilities, labels)
    np.testing.assert_array_equal(joint, [[20_000, 0], [0, 20_000]])


def test_a_class_without_examples_has_a_row_of_the_identity():
    nobody = metrics.confident_joint(np.zeros((0, 3), np.float32), np.zeros(0, np.int32))
    np.testing.assert_array_equal(nobody, np.eye(3))


def test_one_class_has_no_margin():
    with pytest.raises(ValueError, match="scores must have at least two classes"):
        metrics.label_margins(np.ones((3, 1), np.float32), np.zeros(3, np.int32))


def test_a_large_index_is_outside_in_64_bits():
    sizes = {"num_examples": 3, "num_voters": 5, "num_classes": 4}
    with jax.enable_x64(True):
        votes = np.array([[0, 1, 2**32], [0, 2**32, 1], [0, 1, 2]])
        found = metrics.dawid_skene(*votes, **sizes)
        np.testing.assert_array_equal(found, metrics.dawid_skene(*votes[:, :1], **sizes))


def test_dawid_skene_knows_whom_to_trust(rng):
    """Two people who are right nine times of ten against five who guess."""
    truth = rng.integers(3, size=400)
    right = np.array([0.9, 0.9, *[1 / 3] * 5])
    others = (truth + rng.integers(1, 3, size=(7, 400))) % 3
    labels = np.where(rng.random((7, 400)) < right[:, None], truth, others).ravel()
    examples, voters = np.tile(np.arange(400), 7), np.repeat(np.arange(7), 400)
    found = metrics.dawid_skene(
        labels, examples, voters, num_examples=400, num_voters=7, num_classes=3
    )
    majority = np.stack([np.bincount(labels[examples == i], minlength=3) for i in range(400)])
    by_model, by_majority = ((one.argmax(axis=1) == truth).mean() for one in (found, majority))
    # Who trusts one of the two is right in 0.9; four standard deviations of 400.
    assert by_model > 0.9 - 4 * np.sqrt(0.09 / 400)
    assert by_majority < by_model - 0.1


def test_many_votes_do_not_underflow():
    found = metrics.dawid_skene(
        np.zeros(4000, int),
        np.arange(4000) % 2,
        np.arange(4000) % 2000,
        num_examples=2,
        num_voters=2000,
        num_classes=3,
    )
    np.testing.assert_allclose(found[:, 0], 1, rtol=1e-6)
