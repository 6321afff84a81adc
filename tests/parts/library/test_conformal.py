"""Conformal scores and quantiles: to the last bit, by exchangeability, in shifts and clusters."""

import functools
import itertools
import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.parts.library.probabilities import softmax_of
from topk_jax import sets
from topk_jax.taxonomy import Taxonomy

N, L = 12, 5
COUNTS = np.array([50, 20, 8, 4, 1])
KINDS: dict[str, dict[str, Any]] = {
    "lac": {},
    "margin": {},
    "rank": {},
    "aps": {},
    "raps": {"rank_penalty": 0.0625, "unpenalized_ranks": 2},
    "saps": {"rank_penalty": 0.125},
    "pas": {"class_counts": COUNTS},
}
RANDOMISED = ("aps", "raps", "saps")


def tied_probabilities(rng):
    """Multiples of 1/64 that add up to 1, many of them equal or 0 of either sign."""
    cuts = np.sort(rng.integers(0, 17, size=(N, L - 1)) * 4, axis=-1)
    sixtyfourths = np.diff(cuts, axis=-1, prepend=0, append=64).astype(np.float32)
    negative_zeros = (sixtyfourths == 0) & (rng.random((N, L)) < 0.5)
    return np.where(negative_zeros, np.float32(-0.0), sixtyfourths / 64)


def parameters_of(kind, drawn, key):
    return KINDS[kind] | ({"key": key} if drawn else {})


def labels_of(rng, number=N, num_classes=L):
    return rng.integers(num_classes, size=number).astype(np.int32)


# Scores


@pytest.mark.parametrize("kind", RANDOMISED)
def test_scores_without_a_key_are_the_reference(rng, kind):
    for probabilities in (tied_probabilities(rng), np.asarray(softmax_of(rng, N, L))):
        given = {"kind": kind, **KINDS[kind]}
        scores = sets.conformal_scores(probabilities, **given)
        expected = reference.conformal_scores(probabilities, **given)
        # Three roundings of numbers below 1.
        np.testing.assert_allclose(scores, expected, rtol=3e-7, atol=2e-7)


@pytest.mark.parametrize(
    ("kind", "drawn"), [*((kind, False) for kind in KINDS), *((kind, True) for kind in RANDOMISED)]
)
def test_labels_and_sets_have_the_scores_of_all_classes_to_the_last_bit(rng, key, kind, drawn):
    given = parameters_of(kind, drawn, key)
    # The first two share a compiled program, and so do the others.
    batches = [tied_probabilities(rng), np.asarray(softmax_of(rng, N, L, scale=8.0))]
    if kind != "pas":
        batches.append(np.asarray(softmax_of(rng, 40, 500)))
        # Most are 0, and the others are equal to many.
        batches.append(rng.multinomial(64, np.full(500, 1 / 500), 40).astype(np.float32) / 64)
    for probabilities in batches:
        labels = labels_of(rng, *probabilities.shape)
        scores = np.asarray(sets.conformal_scores(probabilities, kind=kind, **given))
        alone = sets.conformal_label_scores(probabilities, labels, kind=kind, **given)
        np.testing.assert_array_equal(alone, scores[np.arange(len(labels)), labels])
        for limit in [*np.asarray(alone)[:6], 0.0, 1.0, np.inf, -np.inf, np.nan]:
            chosen = sets.conformal_set(probabilities, limit, kind=kind, **given)
            np.testing.assert_array_equal(chosen, scores <= limit)
        by_class = rng.choice(scores.reshape(-1), probabilities.shape[-1])
        chosen = sets.conformal_set(probabilities, by_class, kind=kind, **given)
        np.testing.assert_array_equal(chosen, scores <= by_class)
        np.testing.assert_array_equal(sets.score_set(scores, by_class), scores <= by_class)


def test_no_score_of_aps_exceeds_1(rng):
    # The first four add up to more than 1, as rounded probabilities do.
    probabilities = np.float32([[0.4, 0.3, 0.2, 0.1 + 2.0**-20, 0.0]] * N)
    assert (probabilities.astype(np.float64).sum(axis=-1) > 1).all()
    labels = np.full(N, 4, np.int32)
    scores = np.asarray(sets.conformal_scores(probabilities, kind="aps"))
    np.testing.assert_array_equal(scores.max(axis=-1), np.ones(N))
    alone = sets.conformal_label_scores(probabilities, labels, kind="aps")
    np.testing.assert_array_equal(alone, np.ones(N))
    assert sets.conformal_set(probabilities, 1.0, kind="aps").all()


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"pas"}))
def test_a_nan_is_found_at_every_place(rng, kind):
    # XLA's largest and smallest numbers of a row can miss it on the CPU.
    broken = np.array(softmax_of(rng, 40, 500))
    broken[np.arange(40), 12 * np.arange(40) + np.arange(40) % 12] = np.nan
    labels = labels_of(rng, *broken.shape)
    given = {"kind": kind, **KINDS[kind]}
    assert jnp.isnan(sets.conformal_scores(broken, **given)).all()
    assert jnp.isnan(sets.conformal_label_scores(broken, labels, **given)).all()
    assert not sets.conformal_set(broken, np.float32(np.inf), **given).any()


@pytest.mark.parametrize("kind", KINDS)
def test_logits_taken_for_probabilities_are_refused_and_nan_if_traced(rng, kind):
    logits = np.concatenate([rng.normal(size=(N - 1, L)), np.full((1, L), 1.5)]).astype(np.float32)
    logits[:-1, 0] = -0.5
    given = {"kind": kind, **KINDS[kind]}
    labels = np.zeros(N, np.int32)
    scores = functools.partial(sets.conformal_scores, **given)
    of_labels = functools.partial(sets.conformal_label_scores, labels=labels, **given)
    chosen = functools.partial(sets.conformal_set, quantiles=1e9, **given)
    tree = Taxonomy.from_paths([("genus", f"species {label}") for label in range(L)])
    for function in (
        scores,
        of_labels,
        chosen,
        lambda given: jax.jit(lambda: scores(given))(),
        functools.partial(sets.adaptive_set, error=0.1),
        functools.partial(sets.average_error_threshold, error=0.1),
        functools.partial(sets.utility_set, utilities=np.ones(L, np.float32)),
        functools.partial(sets.node_probabilities, taxonomy=tree),
        functools.partial(sets.node_scores, taxonomy=tree),
    ):
        with pytest.raises(ValueError, match="probabilities must be from 0 to 1"):
            function(logits)
    assert jnp.isnan(jax.jit(scores)(logits)).all()
    assert jnp.isnan(jax.jit(of_labels)(logits)).all()
    assert not jax.jit(chosen)(logits).any()


# One quantile


@pytest.mark.parametrize("error", [0.0, 0.1, 0.2, 1 / 3, 0.35, 0.6, 0.99])
def test_the_coverage_of_all_permutations_is_exact(error):
    # The last of five examples is new: over all orders, its score is at most the quantile of the
    # other four in exactly ceil(5 (1 - error)) of five.
    orders = np.array(list(itertools.permutations([0.1, 0.2, 0.3, 0.5, 0.8])), np.float32)
    labels = np.zeros(4, np.int32)
    quantiles = jax.vmap(lambda old: sets.conformal_quantile(old, labels, error=error))(
        orders[:, :4]
    )
    covered = int((orders[:, 4] <= np.asarray(quantiles)).sum())
    assert covered * 5 == len(orders) * math.ceil(5 * (1 - Fraction(str(error))))


def test_quantiles_of_all_classes_are_those_of_the_labels(rng):
    scores, labels = rng.normal(size=(N, L)).astype(np.float32), labels_of(rng)
    alone = scores[np.arange(N), labels]
    np.testing.assert_array_equal(
        sets.class_conditional_quantiles(scores.reshape(3, 4, L), labels.reshape(3, 4), error=0.5),
        sets.class_conditional_quantiles(alone, labels, error=0.5, num_classes=L),
    )


# Quantiles of classes


def test_a_weight_of_0_leaves_out_infinite_quantiles():
    scores, labels = np.float32([-np.inf, 0.25, 0.5, 0.5]), np.array([0, 1, 1, 1])
    given: dict[str, Any] = {"error": 0.5, "num_classes": 2}
    of_all, of_classes = (
        sets.interpolated_quantiles(scores, labels, weight=weight, **given) for weight in (0.0, 1.0)
    )
    np.testing.assert_array_equal(of_all, [0.5, 0.5])
    np.testing.assert_array_equal(of_classes, [-np.inf, 0.5])


def test_equal_weights_of_a_label_shift_change_nothing(rng):
    for number in (9, 19, 20, 39):
        scores, labels = rng.random(number).astype(np.float32), labels_of(rng, number)
        for error in (0.0, 0.05, 0.1, 0.3, 0.9):
            expected = sets.conformal_quantile(scores, labels, error=error)
            for weight in (0.1, 1.0, 7.0):
                quantiles = sets.label_shift_quantiles(
                    scores, labels, error=error, weights=np.full(L, weight), num_classes=L
                )
                assert (quantiles == expected).all()


def test_traced_weights_without_ratios_have_no_quantiles(rng):
    scores, labels = rng.random(N).astype(np.float32), labels_of(rng)
    quantiles = jax.jit(
        lambda weights: sets.label_shift_quantiles(
            scores, labels, error=0.5, weights=weights, num_classes=L
        )
    )
    assert not jnp.isnan(quantiles(jnp.ones(L).at[2].set(0.0))).any()
    # The sum of the last ones overflows.
    for wrong in (jnp.zeros(L), jnp.full(L, 1e38)):
        assert jnp.isnan(quantiles(wrong)).all()


def test_coverage_holds_under_a_label_shift(rng):
    # Class 1 has larger scores, and is rare here and frequent among the new examples.
    num_draws, num_examples, error = 4000, 30, 0.2
    old, new = np.array([0.8, 0.2]), np.array([0.3, 0.7])
    labels = rng.choice(2, size=(num_draws, num_examples), p=old).astype(np.int32)
    scores = (rng.random(labels.shape) + labels).astype(np.float32)
    tested = rng.choice(2, size=num_draws, p=new)
    score = rng.random(num_draws) + tested

    def covered(weights):
        quantiles = jax.vmap(
            lambda scores, labels: sets.label_shift_quantiles(
                scores, labels, error=error, weights=weights, num_classes=2
            )
        )(scores, labels)
        return float((score <= np.asarray(quantiles)[np.arange(num_draws), tested]).mean())

    # Five standard errors of 4,000 coins of 0.8.
    slack = 5 * math.sqrt(0.8 * 0.2 / num_draws)
    assert covered(new / old) >= 1 - error - slack
    assert covered(np.ones(2)) < 1 - error - slack


def test_rank_calibration_can_miss_two_of_twelve():
    # As in the docstring: the new example is last, with 11 others and an error of 0.1.
    covered = 0
    for new in range(12):
        old = np.delete(np.arange(1, 13), new).astype(np.float32)
        quantiles, ranks = sets.rank_calibrated_quantiles(
            old / 12, old, np.zeros(11, np.int32), error=0.1, num_classes=1
        )
        covered += bool((new + 1) / np.float32(12) <= quantiles[0] and new + 1 <= ranks[0])
    assert covered == 10


# Clusters


def describing_half(key, number):
    """The examples that describe the classes."""
    return np.asarray(jax.random.uniform(jax.random.split(key)[0], (number,))) < 0.5


def arrangements(rng, describes):
    """Scores and labels of six classes or fewer, where some examples describe the classes."""
    number = len(describes)
    few = np.arange(number, dtype=np.int32) % 2
    # Nine examples describe a class at an error of 0.1, and eight do not.
    few[np.flatnonzero(describes)[:8]], few[np.flatnonzero(describes)[8:17]] = 3, 2
    # With weights of 2, 1 and 1 at 0, 1 and 1.21 further the first two are joined, and with
    # weights of 4, 1 and 1 it would be the last two.
    roots = np.repeat(np.arange(3, dtype=np.int32), [4 * number // 6, number // 6, number // 6])
    two_kinds = np.arange(number, dtype=np.int32) % 6
    return {
        "two kinds": (rng.random(number) + (two_kinds >= 3), two_kinds),
        "infinite": (np.where(two_kinds == 5, np.inf, rng.random(number) + two_kinds), two_kinds),
        "few examples": (rng.random(number) + few, few),
        "roots": (np.array([0.0, 1.0, 2.21])[roots], roots),
    }


@pytest.mark.parametrize("num_clusters", [1, 2])
@pytest.mark.parametrize("arrangement", ["two kinds", "infinite", "few examples", "roots"])
def test_clusters_are_the_best_of_all(rng, key, arrangement, num_clusters):
    scores, labels = arrangements(rng, describing_half(key, 360))[arrangement]
    given: dict[str, Any] = {
        "scores": scores.astype(np.float32),
        "labels": labels,
        "key": key,
        "error": 0.1,
        "num_clusters": num_clusters,
        "clustering_part": 0.5,
        "num_classes": 7,
    }
    found, expected = (room.clustered_quantiles(**given) for room in (sets, reference))
    np.testing.assert_array_equal(found, np.float32(expected))
    assert len(set(found.tolist())) > (num_clusters > 1)


def test_the_clusters_are_as_many_as_their_authors_choose(rng, key):
    # 100 classes of 50 examples: 50 * 100 / 175 = 28.57 describe, in 14 clusters.
    labels = np.repeat(np.arange(100), 50)
    # A class of 5 is left out: 9 of each of the other 99 count.
    rare = np.append(labels[:-50], np.full(5, 99))
    for one, num_clusters, part in ((labels, 14, 28 / 50), (rare, 2, 5 / 9)):
        scores = (rng.random(len(one)) + one / 50).astype(np.float32)
        given: dict[str, Any] = {"key": key, "error": 0.1, "num_classes": 100}
        found = sets.clustered_quantiles(scores, one, **given)
        expected = sets.clustered_quantiles(
            scores, one, num_clusters=num_clusters, clustering_part=part, **given
        )
        np.testing.assert_array_equal(found, expected)


# Temperature


@pytest.mark.parametrize("scale", [0.1, 30.0])
def test_temperature_is_where_the_cross_entropy_is_least(rng, scale):
    logits = rng.normal(size=(200, 6))
    labels = (logits + rng.gumbel(size=logits.shape) / 2).argmax(axis=-1).astype(np.int32)
    logits = (scale * logits).astype(np.float32)
    logits[0, (labels[0] + 1) % 6] = -np.inf
    found = sets.temperature(logits, labels)
    # The search in float64 compares losses, so it is right to a root of their rounding.
    np.testing.assert_allclose(found, reference.temperature(logits, labels), rtol=2e-5)


def test_temperature_of_labels_without_doubt():
    logits, right = jnp.array([[3.0, 1.0], [0.0, 2.0]]), jnp.array([0, 1])
    confident = sets.temperature(logits, right)
    # exp(-2 / T) is then 0 in float32.
    assert 2.0**-20 <= confident < 2 / 104
    # With equal logits, all temperatures have the same loss.
    assert sets.temperature(jnp.zeros((2, 2)), right) == 1
    assert sets.temperature(logits, 1 - right) == pytest.approx(2.0**20)
