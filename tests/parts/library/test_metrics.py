"""Hits of ties and of every type, and tallies: of parts, beyond 32 bits, of many batches."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import compilation, reference
from topk_jax import metrics

NUM_CLASSES = 6
# Classes with 20 and 100 training examples are the only ones of medium shots.
CLASS_COUNTS = np.array([0, 19, 20, 100, 101, 5000])


def examples(rng, size):
    """Hits, labels (some outside [0, L), one class without any), and a mask."""
    hits = rng.random(size) < 0.6
    labels = rng.choice([-1, 0, 1, 2, 4, 5, 6, 127], size=size).astype(np.int32)
    return hits, labels, rng.random(size) < 0.7


# Hits


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.uint32])
def test_labels_of_any_integer_type(rng, dtype):
    # More classes than 8 bits count.
    scores = rng.normal(size=(20, 300)).astype(np.float32)
    labels = rng.integers(128, size=20)
    for k in (1, 100, 300):
        hits = metrics.top_k_hits(scores, labels.astype(dtype), k=k)
        np.testing.assert_array_equal(hits, reference.top_k_hits(scores, labels, k=k))
    by_class = metrics.tally_by_class(hits, labels.astype(dtype), num_classes=300)
    np.testing.assert_array_equal(by_class.count, np.bincount(labels, minlength=300))


# Means


@pytest.mark.parametrize(("few", "many"), [(20, 100), (0, 0), (19, 19), (101, 5000)])
def test_shot_groups_are_the_reference_and_every_class_is_in_one(few, many):
    groups = metrics.shot_groups(CLASS_COUNTS, few=few, many=many)
    expected = reference.shot_groups(CLASS_COUNTS, few=few, many=many)
    assert list(groups) == list(expected) == ["few", "medium", "many"]
    for name, classes in groups.items():
        np.testing.assert_array_equal(classes, expected[name])
    np.testing.assert_array_equal(sum(np.asarray(c, int) for c in groups.values()), 1)


def test_where_nothing_counts_there_is_no_mean():
    hits, labels = np.ones(3, bool), np.array([0, 1, 7])
    nothing = np.zeros(3, bool)
    assert jnp.isnan(metrics.tally(hits, nothing).mean())
    assert jnp.isnan(metrics.tally(hits[:0]).mean())
    none = metrics.tally_by_class(hits, labels, num_classes=3, where=nothing)
    assert jnp.isnan(none.macro_mean())
    by_class = metrics.tally_by_class(hits, labels, num_classes=3)
    assert by_class.macro_mean(np.array([True, False, True])) == 1
    assert jnp.isnan(by_class.macro_mean(np.array([False, False, True])))


# Parts and the whole


def tallies(hits, labels, where):
    return (
        metrics.tally(hits, where),
        metrics.tally_by_class(hits, labels, num_classes=NUM_CLASSES, where=where),
    )


def means(micro, by_class):
    groups = (None, *metrics.shot_groups(CLASS_COUNTS).values())
    return np.array([micro.mean(), *(by_class.macro_mean(group) for group in groups)])


@pytest.mark.parametrize("cuts", [[], [0, 40], [20], [1, 17, 17, 33]])
def test_padded_batches_add_up_to_the_whole(rng, cuts):
    hits, labels, where = examples(rng, 40)
    parts = []
    for index in np.split(np.arange(40), cuts):
        # Each batch is padded to one size with garbage that the mask hides.
        batch = examples(rng, 50)
        for array, values in zip(batch, (hits, labels, where), strict=True):
            array[: len(index)] = values[index]
        batch[2][len(index) :] = False
        parts.append(jax.jit(tallies)(*batch))
    # Not start=0: what is added up are tallies, in any order.
    totals = parts.pop()
    for part in parts:
        totals = tuple(a + b for a, b in zip(part, totals, strict=True))
    # Integers add up exactly, so the means are equal to the last bit (NaN to NaN).
    np.testing.assert_array_equal(means(*totals), means(*tallies(hits, labels, where)))


def test_devices_add_up_to_the_whole(rng):
    hits, labels, where = examples(rng, (8, 11))
    add_up = jax.pmap(lambda *batch: jax.lax.psum(tallies(*batch), "batch"), "batch")
    on_devices = jax.device_get(add_up(hits, labels, where))
    for device in range(8):
        totals = jax.tree.map(operator.itemgetter(device), on_devices)
        np.testing.assert_array_equal(means(*totals), means(*tallies(hits, labels, where)))


HOWEVER_IT_IS_CALLED = [lambda f: f, jax.jit, lambda f: lambda t: f(jax.device_get(t))]


@pytest.mark.parametrize("wrap", HOWEVER_IT_IS_CALLED)
def test_a_mean_over_classes_does_not_depend_on_the_range_of_integers(rng, wrap):
    """The sums of the classes are within 32 bits, and their own sum is not."""
    mean = wrap(lambda tally: tally.mean())
    for num_classes in (3, 10_000):
        # The smaller sums are those that float32 has: to the last bit.
        for lowest, highest, rounding in ((2**30, 2**31, 4 * 2**-24), (-500, 500, 0)):
            values = rng.integers(lowest, highest, size=num_classes, dtype=np.int32)
            counts = metrics.tally_by_class(values, np.arange(num_classes), num_classes=num_classes)
            exact = np.float32(values.sum(dtype=np.int64)) / np.float32(num_classes)
            np.testing.assert_allclose(mean(counts), exact, rtol=rounding)


def doubled(tally, times):
    for _ in range(times):
        tally = tally + tally
    return tally


def quarters(values):
    return {"weights": jnp.full(values.shape, 0.25)}


# Batches of one size, whose values are of the given mean, after many others of the mean one half.
KINDS_OF_TALLIES = {
    "tally": metrics.tally,
    "tally_by_class": lambda values: metrics.tally_by_class(
        values, jnp.arange(values.size) % 2, num_classes=2, **quarters(values)
    ),
    "tally_f1": lambda values: metrics.tally_f1(
        values[:, None] > 0.5, values[:, None] >= 0, **quarters(values)
    ),
}


@pytest.mark.parametrize("enable_x64", [False, True])
@pytest.mark.parametrize("kind", KINDS_OF_TALLIES)
def test_means_of_real_values_do_not_drift_however_many_batches_there_are(kind, enable_x64):
    tally_of, num_batches = KINDS_OF_TALLIES[kind], 5000
    add_up = jax.jit(
        lambda start, batches: jax.lax.scan(
            lambda total, batch: (total + tally_of(batch), None), start, batches
        )[0]
    )
    # A constant, which XLA knows.
    add_up_equal = jax.jit(
        lambda start, size: jax.lax.fori_loop(
            0, num_batches, lambda _, total: total + tally_of(jnp.full(size, 0.75)), start
        ),
        static_argnums=1,
    )
    with jax.enable_x64(enable_x64):
        for size in (1, 3, 33):
            start, times = tally_of(jnp.full(size, 0.5)), 24
            values = jnp.full((num_batches, size), 0.75)
            together = doubled(start, times)
            expected = (0.5 * 2**times + 0.75 * num_batches) / (2**times + num_batches)
            if kind == "tally_f1":
                # Sets that are empty, and then right: 2 a / (a + b).
                expected = 2 * num_batches / (2**times + 2 * num_batches)
            for found in (add_up(together, values), add_up_equal(together, size)):
                assert found.mean().dtype == (jnp.float64 if enable_x64 else jnp.float32)
                # The mean itself is rounded, a total of two classes is, and so are batches.
                np.testing.assert_allclose(found.mean(), expected, rtol=4 * 2**-24)


@pytest.mark.parametrize("wrap", HOWEVER_IT_IS_CALLED)
def test_counts_and_sums_of_sizes_are_exact_far_beyond_32_bits(wrap):
    sizes = np.array([2**31 - 1, 1000, 3], np.int32)
    # A total of one batch that is beyond 32 bits, and one of many batches.
    more = metrics.tally(np.repeat(sizes, 5))
    many = doubled(more, 12) + metrics.tally(sizes[2:])
    exact = (5 * 2**12 * int(sizes.sum(dtype=np.int64)) + 3, 15 * 2**12 + 1)
    mean = wrap(lambda tally: tally.mean())
    np.testing.assert_allclose(mean(many), exact[0] / exact[1], rtol=2 * 2**-24)
    # What 32 bits do not have is their largest integer.
    total, count = wrap(lambda tally: (tally.total, tally.count))(many)
    assert (total, count) == (2**31 - 1, exact[1])
    # Small numbers after large ones count.
    hits = doubled(metrics.tally(np.ones(2, bool)), 26) + metrics.tally(np.zeros(3, bool))
    assert wrap(lambda tally: tally.count)(hits) == 2**27 + 3
    many_hits = doubled(hits, 8)
    assert wrap(lambda tally: tally.count)(many_hits) == 2**31 - 1
    np.testing.assert_allclose(mean(many_hits), 2**27 / (2**27 + 3), rtol=2 * 2**-24)


def test_tallies_of_one_class_in_a_mapped_program():
    # As many programs as examples, whose constant labels XLA has shared with the sums.
    values, labels = jnp.arange(36).reshape(6, 6), np.zeros(6, np.int32)

    def total_of(values):
        return metrics.tally_by_class(values, labels, num_classes=1).total[0]

    found = compilation.for_users(jax.vmap(total_of))(values)
    np.testing.assert_array_equal(found, values.sum(axis=1))


def test_a_million_equal_weights_add_up_to_their_number(rng):
    labels = rng.integers(2, size=2**20)
    counts = metrics.tally_by_class(
        labels == 0, labels, num_classes=2, weights=np.full(labels.shape, 0.1, np.float32)
    )
    # At most 256 sums of 4,096 numbers, one by one, whose roundings are of both signs.
    np.testing.assert_allclose(counts.count, 0.1 * np.bincount(labels), rtol=1e-4)


def test_expected_hits_are_at_most_one():
    for number in range(1, 30):
        votes = jnp.full((1, number), 1 / number)
        assert metrics.expected_hits(jnp.ones((1, number), bool), votes)[0] <= 1


def test_an_interval_at_a_level_that_rounds_to_one_is_everything():
    found = metrics.cluster_interval(
        jnp.array([True, False, True, True]),
        jnp.array([0, 0, 1, 2]),
        num_groups=3,
        level=0.99999999,
    )
    np.testing.assert_allclose(found, (0, 1), atol=1e-3)


LABELS, HITS_OF_TWO = np.zeros(2, np.int32), np.ones(2, bool)
untyped: Any = metrics


@pytest.mark.parametrize(
    ("call", "error", "name"),
    [
        (lambda: untyped.shot_groups([5, 30], few=30, many=29), ValueError, "many"),
        (lambda: untyped.tally(HITS_OF_TWO).macro_mean([True]), ValueError, "classes"),
        (lambda: untyped.tally(HITS_OF_TWO) + 1, TypeError, "unsupported operand"),
        (
            lambda: jax.jit(lambda n: untyped.tally_by_class(LABELS, LABELS, num_classes=n))(3),
            TypeError,
            "num_classes",
        ),
    ],
)
def test_refusals(call, error, name):
    with pytest.raises(error, match=name):
        call()
