"""Fewer training examples, a long tail, noise in labels, and what is held out of published data."""

from types import SimpleNamespace

import numpy as np
import pytest

from train.configuration import DatasetFields
from train.data import splits
from train.data.cifar100 import SUPERCLASS_NAMES, SUPERCLASSES
from train.data.dataset import Dataset
from train.data.examples import Examples
from train.data.splits import Holdout
from train.data.taxonomy import ClassTree
from train.foundation.errors import UserError

# The coarse label of each fine one, as the data set's files pair them.
COARSE_LABELS = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7),
    *(6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10),
    *(16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16),
    *(12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
)


def dataset(counts, tree=None, seed=0):
    """Examples of classes of these sizes, mixed; a few others for validation and the test."""
    names = [f"class {label:02}" for label in range(len(counts))]
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    every = np.concatenate([labels, np.arange(len(counts)).repeat(2)])
    examples = Examples.of_source(np.zeros((len(every), 1)), every, names, "DATA")
    places = np.split(np.arange(len(every)), [len(labels), len(labels) + len(counts)])
    train, validation, test = map(examples.take, places)
    paths = None if tree is None else tuple(zip(tree, names, strict=True))
    return Dataset(
        train=train,
        validation=validation,
        test=test,
        class_names=tuple(names),
        image_shape=(1,),
        tree=None if paths is None else ClassTree(("genus", "class"), paths),
    )


def load(given, *, seed=0, **fields):
    """The training examples, after it is checked that all others are the same."""
    spec = SimpleNamespace(load=lambda _data_dir: given)
    asked = DatasetFields(name="any", batch_size=1, **fields)
    found = splits.load(spec, asked, seed=seed)
    assert (found.validation, found.test) == (given.validation, given.test)
    return found.train


def counts(examples):
    return np.bincount(examples.labels, minlength=len(examples.class_names))


def test_a_class_has_at_most_so_many_examples_and_fewer_are_a_part_of_more():
    given = dataset((30, 7, 15))
    assert load(given) is given.train
    places = {size: load(given, train_per_class=size).places for size in (4, 10, 30)}
    np.testing.assert_array_equal(places[30], given.train.places)
    assert {*places[4]} < {*places[10]} < {*places[30]}
    assert counts(load(given, train_per_class=10)).tolist() == [10, 7, 10]
    # Pinned, in their order: with other ones, results could not be compared.
    assert places[4].tolist() == [5, 8, 9, 14, 23, 28, 32, 33, 34, 40, 48, 49]


# The totals are the totals of CIFAR-100-LT, without held-out images.
@pytest.mark.parametrize(("factor", "total"), [(10, 19_573), (50, 12_608), (100, 10_847)])
def test_long_tails_have_the_sizes_that_others_use(factor, total):
    given = dataset([500] * 100)
    tail = counts(load(given, imbalance_factor=factor))
    assert tail.sum() == total
    assert (tail.max(), tail.min()) == (500, 500 // factor)
    # A longer tail is a part.
    longer, shorter = (load(given, imbalance_factor=one).places for one in (factor, factor / 2))
    assert {*longer} < {*shorter} < {*given.train.places}


def test_a_class_keeps_what_it_has_in_a_long_tail_and_at_least_one():
    sizes = counts(load(dataset((3, 200, 50, 7)), imbalance_factor=4))
    tail = counts(load(dataset([200] * 4), imbalance_factor=4))
    np.testing.assert_array_equal(sizes, np.minimum(tail, [3, 200, 50, 7]))
    both = load(dataset([200] * 4), imbalance_factor=4, train_per_class=100)
    assert sorted(counts(both).tolist()) == [25, 39, 62, 100]
    # Pinned, as the examples are.
    assert counts(load(dataset([32] * 6), imbalance_factor=32)).tolist() == [32, 1, 2, 8, 4, 16]
    message = r"imbalance_factor must be at most 20, the training examples of the largest.* 20\.5$"
    with pytest.raises(UserError, match=message):
        load(dataset((10, 20)), imbalance_factor=20.5)


def test_superclasses_are_those_of_the_files_and_blocks_are_none():
    assert SUPERCLASSES == COARSE_LABELS
    assert len({name for names in SUPERCLASS_NAMES.values() for name in names}) == 100
    assert all(len({*SUPERCLASSES[start : start + 5]}) > 1 for start in range(0, 100, 5))


def test_every_member_of_a_group_is_as_likely():
    # Classes 0 and 2 and classes 1, 3 and 4: groups need be neither equal nor consecutive.
    given = dataset((15_000, 15_000, 0, 0, 0), tree="ababb")
    found = counts(load(given, label_noise=0.3, seed=1)) / 15_000
    expected = np.array([0.85, 0.8, 0.15, 0.1, 0.1])
    # Five standard errors of a share of 15,000.
    assert (abs(found - expected) < 5 * np.sqrt(expected * (1 - expected) / 15_000)).all()


def test_the_noise_of_an_example_depends_on_seed_and_place_alone():
    given = dataset([90] * 100)
    noise = {"label_noise": 0.4, "label_noise_kind": "blocks"}
    noisy = load(given, **noise).labels
    # Of fewer examples, each has the same.
    fewer = load(given, **noise, train_per_class=20)
    np.testing.assert_array_equal(fewer.labels, noisy[fewer.places])
    assert (load(given, **noise, seed=1).labels != noisy).any()
    # What changes at a lower probability changes at a higher one, and to the same.
    lower = load(given, **{**noise, "label_noise": 0.1}).labels
    changed = lower != given.train.labels
    assert changed.any()
    np.testing.assert_array_equal(lower[changed], noisy[changed])


def test_the_last_block_has_what_is_left_and_superclasses_are_needed(tmp_path):
    given = dataset([50] * 12)
    noisy = load(given, label_noise=1.0, label_noise_kind="blocks").labels
    assert {*noisy[given.train.labels >= 10]} == {10, 11}
    message = r"config\.dataset\.label_noise_kind must be blocks or uniform, as nothing is above"
    with pytest.raises(UserError, match=message):
        load(given, label_noise=0.1)
    rows = [f"class {label:02},genus {label % 2}" for label in range(12)]
    (tmp_path / "ranks.csv").write_text("\n".join(["class,genus", *rows]))
    noisy = load(given, label_noise=1.0, taxonomy=str(tmp_path / "ranks.csv")).labels
    np.testing.assert_array_equal(noisy % 2, given.train.labels % 2)
    assert (noisy != given.train.labels).mean() > 0.7


@pytest.mark.parametrize("balanced", [True, False])
def test_what_is_held_out_of_cifar100_is_balanced_if_asked_and_from_all_over(balanced):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 500))
    train, validation = splits.hold_out(labels, Holdout(5000, balanced), num_classes=100)
    assert (len(train), len(validation)) == (45_000, 5_000)
    np.testing.assert_array_equal(np.union1d(train, validation), np.arange(50_000))
    counts = np.bincount(labels[validation], minlength=100)
    assert (counts.min() == counts.max() == 50) == balanced
    # Drawn from all over: the mean place of 5,000 has a standard error of 50000 / sqrt(12 * 5000).
    assert abs(validation.mean() - 25_000) < 5 * 50_000 / np.sqrt(12 * 5000)


def test_held_out_examples_and_orders_are_those_of_every_run():
    # Pinned: another order would be another split, and results could not be compared.
    labels = np.arange(40, dtype=np.int32) % 4
    for balanced, expected in ((True, [9, 18, 19, 20]), (False, [9, 13, 18, 20])):
        _, validation = splits.hold_out(labels, Holdout(4, balanced), num_classes=4)
        assert validation.tolist() == expected
    # The last class has no example, and is not passed over.
    with pytest.raises(UserError, match="of each than the 0 of the smallest; got 5"):
        splits.hold_out(labels, Holdout(5, balanced=True), num_classes=5)
    # The order of the files of tensorflow-datasets, in which published results were trained.
    expected = [6, 1, 8, 9, 4, 3, 2, 7, 10, 5, 11, 0]
    assert splits.shuffled("test", np.arange(12)).tolist() == expected
