"""Scores of groups of examples, beside the library's."""

import dataclasses

import numpy as np
import pytest
from scipy import special, stats

from tests import reference
from topk_jax import sets
from train.data.classes import Classes
from train.data.truths import VOTES, Truths
from train.foundation.errors import UserError
from train.scores import observations, scores
from train.scores.observations import Combination, combine
from train.scores.scores import Scores

NUM_CLASSES = 6
BY = ("log_probabilities", "probabilities", "maximum")
EPS = float(np.finfo(np.float32).eps)


def draw(rng, number=40):
    """Examples of groups in any order; those of a group have one class and are alike."""
    sizes = rng.integers(1, 5, size=number)
    of = rng.permutation(np.repeat(np.arange(number), sizes))
    labels = rng.integers(NUM_CLASSES, size=number)[of].astype(np.int32)
    logits = rng.normal(size=(len(of), NUM_CLASSES)) + rng.normal(size=(number, NUM_CLASSES))[of]
    logits[np.arange(len(of)), labels] += 2
    values = special.softmax(logits, axis=-1).astype(np.float32)
    return Scores(
        values=values,
        labels=labels,
        ranks=reference.label_ranks(values, labels),
        loss=-np.log(values[np.arange(len(of)), labels]),
        classes=Classes.of("abcdef"),
        groups=np.array([*map(str, of)], object),
    )


def numbers(examples):
    return np.array([int(name) for name in examples.groups])


@pytest.mark.parametrize(
    ("by", "stored"), [(by, by == "log_probabilities") for by in BY] + [("maximum", True)]
)
def test_observations_are_those_of_the_library(rng, by, stored, monkeypatch):
    # Several parts of the observations, the last of them smaller.
    monkeypatch.setattr(scores, "CHUNK", 9 * NUM_CLASSES)
    if stored:
        monkeypatch.setattr(scores, "MOST_IN_MEMORY", 0)
    examples = draw(rng)
    of, observed = numbers(examples), combine(examples, Combination(by))
    found, order = observed.scores, list(dict.fromkeys(of.tolist()))
    assert isinstance(found.values, np.memmap) == stored
    expected = sets.combine(np.log(examples.values), of, num_groups=40, by=by)
    # The logarithms of 32 bits, and their sums.
    np.testing.assert_allclose(found.values, np.exp(expected)[order], rtol=64 * EPS)
    assert found.groups.tolist() == found.names.tolist() == [*map(str, order)]
    np.testing.assert_array_equal(observed.sizes, np.bincount(of)[order])
    labels = np.asarray(sets.group_labels(examples.labels, of, num_groups=40))[order]
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_array_equal(found.ranks, reference.label_ranks(found.values[:], labels))
    losses = [examples.loss[of == number].mean() for number in order]
    np.testing.assert_allclose(found.loss, losses, rtol=1e-6)


@pytest.mark.parametrize("by", BY)
def test_scores_that_are_no_probabilities_are_not_made_to_add_up(rng, by):
    examples = draw(rng)
    sigmoids = special.expit(rng.normal(size=examples.values.shape)).astype(np.float32)
    given = dataclasses.replace(examples, values=sigmoids)
    found = combine(given, Combination(by)).scores
    pool = dict(zip(BY, (stats.gmean, np.mean, np.max), strict=True))[by]
    for name, row in zip(found.groups, found.values, strict=True):
        rows = sigmoids[numbers(examples) == int(name)].astype(np.float64)
        np.testing.assert_allclose(row, pool(rows, axis=0), rtol=1e-6)
    with pytest.raises(UserError, match="needs probabilities that add up to 1"):
        Combination("trained").fit(given)


def test_a_probability_that_is_rounded_to_0_does_not_decide_alone():
    """Of three photographs, one is sure of another class: its label has no probability left."""
    rows = np.float32([[0.9, 0.1, 0], [0.9, 0.1, 0], [0, 0.5, 0.5]])
    found = Combination().pool(rows, np.zeros(3, int))
    assert 0 < found[0, 0] < found[0, 1]
    assert np.isfinite(np.log(found)).all()


def test_trained_weights_are_those_of_the_library(rng):
    examples = draw(rng, 300)
    combination, of = Combination("trained").fit(examples), numbers(examples)
    means = sets.combine(np.log(examples.values), of, num_groups=300)
    labels = sets.group_labels(examples.labels, of, num_groups=300)
    expected = sets.group_weights(means, np.bincount(of), labels)
    np.testing.assert_allclose(combination.weights, expected, atol=1e-4)
    weighted = sets.combine(np.log(examples.values), of, num_groups=300, weights=expected)
    order, found = list(dict.fromkeys(of.tolist())), combine(examples, combination).scores
    np.testing.assert_allclose(found.values, np.exp(weighted)[order], atol=1e-4)


def test_observations_of_several_classes_are_left_out_and_told(rng, caplog):
    examples = draw(rng)
    of = numbers(examples)
    several = np.flatnonzero(np.bincount(of) > 1)[:2]
    for number in several:
        first = np.flatnonzero(of == number)[0]
        examples.labels[first] = (examples.labels[first] + 1) % NUM_CLASSES
    whole = combine(examples.take(np.flatnonzero(~np.isin(of, several))), Combination())
    found = combine(examples, Combination())
    assert (found.num_ambiguous, len(found.scores)) == (2, 38)
    for name in ("values", "labels", "ranks", "loss", "groups"):
        one, other = (getattr(each.scores, name) for each in (found, whole))
        np.testing.assert_array_equal(one, other)
    assert "2 of 40 observations" in caplog.text
    one = examples.take(np.flatnonzero(of == several[0]))
    assert observations.have_labels(examples)
    assert not observations.have_labels(one)
    with pytest.raises(UserError, match="1 of 1"):
        combine(one, Combination())


def test_a_class_that_is_not_known_is_a_miss_and_an_example_without_a_group_is_by_itself(rng):
    examples = draw(rng, 5)
    alone = np.array(["", *examples.groups[1:-1], ""], object)
    unknown = np.full_like(examples.labels, NUM_CLASSES)
    given = dataclasses.replace(
        examples, labels=unknown, loss=examples.loss * np.nan, groups=alone, unknown_classes=("g",)
    )
    found = combine(given, Combination()).scores
    assert (found.ranks == NUM_CLASSES).all()
    assert np.isnan(found.loss).all()
    assert found.class_names == tuple("abcdefg")
    # By the number of the example.
    places = np.flatnonzero(found.groups == "")
    assert found.names[places].tolist() == ["example 0", f"example {len(alone) - 1}"]
    np.testing.assert_allclose(found.values[places], examples.values[[0, -1]], rtol=1e-6)


def test_groups_say_as_much_as_so_many_examples():
    def scores_of(groups):
        number = np.zeros(len(groups), int)
        rows = np.ones((len(groups), 1), np.float32)
        one = Scores(values=rows, labels=number, ranks=number, loss=number, classes=Classes.of("a"))
        return dataclasses.replace(one, groups=np.array([*groups], object))

    assert observations.num_independent(scores_of("aabbcc")) == 3
    # (4 + 1 + 1)^2 / (16 + 1 + 1).
    assert observations.num_independent(scores_of(["a"] * 4 + ["", ""])) == 2
    assert observations.have_several(scores_of("aab"))
    assert not observations.have_several(scores_of(["", "", "b"]))
    alone = dataclasses.replace(scores_of("aab"), groups=None)
    assert observations.num_independent(alone) == 3


def test_what_is_calibrated_on_is_among_the_known_classes(rng):
    """A class that is not known has no share; what is left of a truth adds up to 1."""
    truths = Truths(
        np.int32([[0, 6], [2, 1], [6, 6]]), np.float32([[0.25, 0.75], [0.5, 0.5], [1, 0]]), VOTES
    )
    examples = dataclasses.replace(draw(rng).take(np.arange(3)), labels=np.int32([6, 2, 6]))
    assert examples.labels_and_shares()[1] is None
    given = examples.with_truths(truths)
    classes, shares = given.labels_and_shares()
    assert shares.tolist() == [[1, 0], [0.5, 0.5], [0, 0]]
    assert classes.max() < NUM_CLASSES
    assert given.drawn[0] == 0
    ranks = reference.label_ranks(given.values[1:2], np.array([2]))
    assert (given.class_ranks[1, 0], given.class_ranks[0, 1]) == (ranks[0], NUM_CLASSES)
    assert given.of_known().truths.classes.tolist() == [[2, 1]]
