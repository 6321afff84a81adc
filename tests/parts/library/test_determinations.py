"""Classes from the votes of several people, against loops in float64."""

import jax
import jax.numpy as jnp
import numpy as np

from topk_jax import metrics

SIZES = {"num_examples": 12, "num_voters": 5, "num_classes": 4}


def test_a_large_index_is_outside_in_64_bits():
    with jax.enable_x64(True):
        labels, examples, voters = np.array([[0, 1, 2**32], [0, 2**32, 1], [0, 1, 2]])
        found = np.asarray(metrics.weighted_votes(labels, examples, voters, **SIZES))
    assert np.argwhere(found).tolist() == [[0, 0]]


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


def test_a_traced_number_of_labels_below_0_gives_nan():
    assert np.isnan(jax.jit(metrics.voter_weights)(jnp.array([-1])))
