"""Dividing examples: the same ones are held out on every machine, and no group is divided."""

import dataclasses
import unicodedata

import numpy as np
import pytest

from tests.rows import rows
from train.data import division
from train.data.examples import Examples, Split
from train.data.truths import SEVERAL, Truths
from train.foundation.errors import UserError

CLASSES = tuple(f"class {label}" for label in range(8))
NONE, TRAIN, VALIDATION, TEST = Split


def examples(labels, *, names="{}.jpg", groups=None, splits=None):
    """Examples; a text makes their names of their numbers."""
    labels = np.array(labels, np.int32)
    texts = [names.format(index) for index in range(len(labels))] if names else None
    return Examples.of_source(
        np.zeros((len(labels), 1), np.float32),
        labels,
        CLASSES[: labels.max() + 1],
        "DATA",
        names=None if texts is None else np.array(texts, object),
        groups=None if groups is None else np.array([*groups], object),
        **({} if splits is None else {"splits": np.array(splits, np.int8)}),
    )


def several(of, classes):
    """Examples of several labels, from the example and the class of each."""
    truths = Truths.of_entries(of, classes, np.ones(len(of)), SEVERAL)
    given = dataclasses.replace(examples(truths.labels), truths=truths)
    return dataclasses.replace(given, class_names=CLASSES[: classes.max() + 1])


def divide(given, validation=0.2, test=0.2, **options):
    return division.divide(given, validation=validation, test=test, **options)


def counts(divided):
    """The number of examples of each class for training, validation and test."""
    return [divided.of_split(split).occurrences().tolist() for split in (TRAIN, VALIDATION, TEST)]


LABELS = np.arange(20) % 2
PLANTS = [f"plant {place // 4}" if place < 12 else "" for place in range(20)]
# Examples, and the places that are held out for validation and for the test. Rows have no names.
PINNED = {
    "names": (examples(LABELS, names="plants/{}.jpg"), [2, 11, 12, 13], [5, 7, 14, 16]),
    "rows": (examples(LABELS, names=None), [4, 7, 8, 13], [0, 14, 15, 19]),
    "groups": (examples(LABELS, groups=PLANTS), [19], [12, 13, 14, 18]),
}


@pytest.mark.parametrize("kind", PINNED)
def test_what_is_held_out_is_that_of_every_machine_and_version(kind):
    given, *expected = PINNED[kind]
    splits = divide(given).splits
    assert [np.flatnonzero(splits == one).tolist() for one in (VALIDATION, TEST)] == expected


@pytest.mark.parametrize("names", ["{}.jpg", None])
def test_the_fractions_of_each_class_are_held_out_and_one_example_is_left(names):
    labels = np.repeat(np.arange(4), [1, 2, 10, 100])
    # Halves are rounded up: 2.5 of ten are 3.
    expected = [[1, 1, 4, 45], [0, 0, 3, 30], [0, 1, 3, 25]]
    assert counts(divide(examples(labels, names=names), 0.3, 0.25)) == expected
    assert counts(divide(examples([0, 1] * 3, names=names), 0.5, 0.4)) == [[1, 1]] * 3


def test_neither_the_order_nor_the_form_of_names_matters():
    labels = np.arange(60) % 3
    given = examples(labels, names="hêtre/{}.jpg")
    shuffled = np.random.default_rng(0).permutation(60)
    expected = divide(given).splits
    np.testing.assert_array_equal(divide(given.take(shuffled)).splits, expected[shuffled])
    texts = [unicodedata.normalize("NFD", name) for name in given.names]
    copy = dataclasses.replace(given, names=np.array(texts, object))
    np.testing.assert_array_equal(divide(copy).splits, expected)
    assert divide(copy).digest() == divide(given).digest()


@pytest.mark.parametrize("kind", ["names", "rows", "groups"])
def test_a_new_example_moves_few_others(kind):
    plants = np.arange(1100) // (3 if kind == "groups" else 1)
    labels = np.random.default_rng(0).integers(0, 5, 1100)[plants]
    groups = [f"plant {plant}" for plant in plants] if kind == "groups" else None
    given = examples(labels, names=None if kind == "rows" else "{}.jpg", groups=groups)
    before = divide(given.take(np.arange(1000)), 0.15, 0.15).splits
    after = divide(given, 0.15, 0.15).splits[:1000]
    # Splits drawn anew would differ in half of the examples.
    assert (before != after).mean() < (0.12 if groups else 0.05)


def test_a_large_group_does_not_keep_smaller_ones_from_being_held_out():
    # In each class 30 examples of one group and 70 alone: the large group is first in some.
    labels = np.repeat(np.arange(8), 100)
    groups = [f"large {label}" * (place % 100 < 30) for place, label in enumerate(labels)]
    found = divide(examples(labels, groups=groups), 0.15, 0.15)
    assert counts(found) == [[70] * 8, [15] * 8, [15] * 8]


@pytest.mark.parametrize("seed", rows(range(3), range(3, 20)))
def test_groups_stay_whole_and_each_class_is_trained(seed, caplog):
    """As the places in which several species were seen."""
    draw = np.random.default_rng(seed)
    labels, places = draw.integers(6, size=90), draw.integers(25, size=90)
    # A species that was seen in one place, after others.
    labels, places = np.append(labels, [6, 6]), np.append(places, [places[0]] * 2)
    found = divide(examples(labels, groups=[f"place {one}" for one in places]), 0.3, 0.4)
    assert (found.of_split(TRAIN).occurrences() > 0).all()
    assert TEST in found.splits
    assert len({*zip(places, found.splits, strict=True)}) == len({*places})
    (message,) = caplog.messages
    assert "groups have images of several classes: either labels are wrong" in message


@pytest.mark.parametrize("seed", range(3))
def test_each_of_several_labels_is_trained(seed):
    draw = np.random.default_rng(seed)
    has = draw.random((40, 6)) < 0.3
    # Only beside others.
    has[:, 5] = False
    has[:2, [0, 5]] = True
    has[np.arange(40), draw.integers(0, 5, 40)] = True
    given = several(*np.nonzero(has))
    found = divide(given, 0.3, 0.4)
    assert (found.of_split(TRAIN).occurrences() > 0).all()
    assert (found.occurrences() == has.sum(axis=0)).all()
    with pytest.raises(UserError, match="no training image of class 5; "):
        # Given splits are kept.
        divide(dataclasses.replace(given, splits=np.where(has[:, 5], TEST, [0, 1] * 20)))


# The given splits of ten examples, and those that they have then.
GIVEN = {
    "all": ([0, 0, 0, 0, 1, 1, 2, 2, 2, 2], [4, 2, 4]),
    "no validation": ([0] * 6 + [2] * 4, [4, 2, 4]),
    "no test": ([0] * 6 + [1] * 4, [4, 4, 2]),
    "some without": ([-1] * 4 + [2] * 6, [2, 2, 6]),
    "some for training": ([0] * 4 + [-1] * 6, [6, 2, 2]),
}


@pytest.mark.parametrize("case", GIVEN)
def test_given_splits_are_kept_and_missing_ones_held_out(case, caplog):
    splits, sizes = GIVEN[case]
    found = divide(examples([0, 1] * 5, splits=splits), 0.3, 0.3)
    assert [len(found.of_split(split)) for split in (TRAIN, VALIDATION, TEST)] == sizes
    kept = [split != NONE and (split != TRAIN or case == "all") for split in splits]
    np.testing.assert_array_equal(found.splits[kept], np.array(splits)[kept])
    told = [f"DATA: {splits.count(-1)} of 10 images have no split; they are for"] * (-1 in splits)
    assert [line[: len(told[0])] for line in caplog.messages] == told


def test_groups_of_given_splits_are_followed_and_told_if_they_are_divided(caplog):
    splits = [TEST, TEST, *[NONE] * 10]
    found = divide(examples([0, 1] * 6, groups="ababcdefghij", splits=splits))
    assert found.splits[:4].tolist() == [TEST] * 4
    assert TEST not in found.splits[4:]
    caplog.clear()
    splits = [TRAIN] * 4 + [VALIDATION] * 2 + [TEST] * 4
    found = divide(examples([0, 1] * 5, groups="abcdefabgh", splits=splits))
    assert found.splits.tolist() == splits
    (message,) = caplog.messages
    assert "2 of 8 groups have images in several of the given splits" in message
    assert message.endswith(": a, b")


def test_classes_without_training_examples_are_refused_left_out_or_kept(caplog):
    splits = [TRAIN, TEST, TRAIN] * 4 + [VALIDATION, TEST, VALIDATION]
    given = examples([0, 1, 2] * 5, splits=splits)
    line = "DATA has no training row of class 1; config.dataset.unseen_classes=leave_out leaves"
    with pytest.raises(UserError, match=f"^{line} out their 5 rows$"):
        divide(given, example="row")
    with pytest.raises(UserError, match=r"^DATA has no images for test: each class keeps"):
        divide(given, unseen=division.LEAVE_OUT)
    given.splits[-1] = TEST
    found = divide(given, unseen=division.LEAVE_OUT)
    assert found.class_names == ("class 0", "class 2")
    assert counts(found) == [[4, 4], [1, 0], [0, 1]]
    assert found.places.tolist() == [place for place in range(15) if place % 3 != 1]
    assert caplog.messages[-1].endswith("of class 1; all 5 images are left out")
    kept = divide(given, unseen=division.KEEP)
    assert (kept.class_names, len(kept)) == (CLASSES[:3], 15)
    # An example has the class beside another one.
    given = several(np.array([0, 1, 1, 2, 3]), np.array([0, 0, 1, 2, 2]))
    splits = np.array([TRAIN, TEST, TRAIN, VALIDATION])
    with pytest.raises(UserError, match="leaves out their 1 images"):
        divide(dataclasses.replace(given, splits=splits))


NOTHING_HELD_OUT = "has no images for validation: each class keeps one {} for training; more "
# The examples, the fraction, and the line.
REFUSED = [
    (examples([0] * 9), 0.2, "must have at least two classes; it has 1 .class 0"),
    (examples([0, 1]), 0.2, NOTHING_HELD_OUT.format("image")),
    (examples([0, 1] * 9), 0.0, NOTHING_HELD_OUT.format("image")),
    (examples([0, 1] * 8, groups="ab" * 8), 0.2, NOTHING_HELD_OUT.format("group")),
]


@pytest.mark.parametrize(("given", "validation", "message"), REFUSED)
def test_what_cannot_be_divided_is_told(given, validation, message):
    with pytest.raises(UserError, match=f"^DATA {message}"):
        divide(given, validation)
    with pytest.raises(UserError, match=r"less than 1 with config.*test_f.*; got 0.5 and 0.5"):
        division.check_fractions(0.5, 0.5)


def test_the_digest_is_of_names_labels_splits_and_contents_and_not_of_credits():
    given = divide(examples([0, 1] * 8))
    changes = {"names": given.names[::-1], "labels": given.labels[::-1]}
    changes |= {"splits": given.splits[::-1], "class_names": ("ash", "oak"), "content": "other"}
    changed = [dataclasses.replace(given, **{name: changes[name]}) for name in changes]
    assert len({one.digest() for one in (given, *changed)}) == 6
    assert dataclasses.replace(given, credits=given.names).digest() == given.digest()
