"""Classes from the votes of several people, against loops in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from topk_jax import metrics

SIZES = {"num_examples": 12, "num_voters": 5, "num_classes": 4}


def votes(rng, number=40):
    """Labels, examples and people; the last example has no vote."""
    return (
        rng.integers(SIZES["num_classes"], size=number),
        rng.integers(SIZES["num_examples"] - 1, size=number),
        rng.integers(SIZES["num_voters"], size=number),
    )


def left_out(given):
    """The votes with three more, of which each has one index outside its range."""
    outside = np.array([[4, 0, 0], [0, -1, 0], [0, 0, 5]]).T
    return [np.append(one, more) for one, more in zip(given, outside, strict=True)]


@pytest.mark.parametrize("has_authors", [False, True])
def test_weighted_votes_are_those_of_the_loop(rng, has_authors):
    given = votes(rng)
    authors = rng.integers(-1, 5, SIZES["num_examples"]) if has_authors else None
    settings = {"offset": 0.5, "threshold": 1.5, "num_rounds": 4}
    found = metrics.weighted_votes(*left_out(given), **SIZES, **settings, authors=authors)
    nobody = np.full(SIZES["num_examples"], -1)
    expected = reference.weighted_votes(
        *given,
        num_examples=12,
        num_classes=4,
        authors=nobody if authors is None else authors,
        **settings,
    )
    # Powers, and sums of a few weights, in 32 bits.
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_large_index_is_outside_in_64_bits():
    with jax.enable_x64(True):
        labels, examples, voters = np.array([[0, 1, 2**32], [0, 2**32, 1], [0, 1, 2]])
        found = np.asarray(metrics.weighted_votes(labels, examples, voters, **SIZES))
    assert np.argwhere(found).tolist() == [[0, 0]]


def test_dawid_skene_is_the_loop(rng):
    given = votes(rng)
    settings = {**SIZES, "smoothing": 0.1, "num_steps": 5}
    found = metrics.dawid_skene(*left_out(given), **settings)
    expected = reference.dawid_skene(*given, **settings)
    # Five steps, each with sums of logarithms in 32 bits.
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


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


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: metrics.voter_weights(np.array([-1])), ValueError, "num_labels must be"),
        (
            lambda: metrics.dawid_skene(np.zeros(2), 0, 0, **SIZES),
            TypeError,
            "labels must be",
        ),
        (
            lambda: metrics.weighted_votes(np.zeros(2, int), np.zeros(3, int), 0, **SIZES),
            ValueError,
            r"examples must have shape \(2,\), got shape \(3,\)",
        ),
        (
            lambda: metrics.weighted_votes(
                *np.zeros((3, 2), int), **SIZES, authors=np.zeros(2, int)
            ),
            ValueError,
            r"authors must have shape \(12,\)",
        ),
        (
            lambda: metrics.dawid_skene(*np.zeros((3, 2), int), **{**SIZES, "num_voters": 0}),
            ValueError,
            "num_voters must be at least 1, got 0",
        ),
    ],
)
def test_wrong_arguments_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_traced_number_of_labels_below_0_gives_nan():
    assert np.isnan(jax.jit(metrics.voter_weights)(jnp.array([-1])))
