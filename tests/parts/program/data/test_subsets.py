"""Fewer training examples, a long tail of them, and noise in their labels; nothing else changes."""

from types import SimpleNamespace

import numpy as np
import pytest

from train.configuration import DatasetFields
from train.data import splits
from train.data.cifar100 import SUPERCLASS_NAMES, SUPERCLASSES
from train.data.dataset import Dataset
from train.data.examples import Examples
from train.data.taxonomy import ClassTree
from train.foundation.errors import UserError

# The coarse label of each fine one, as the data set's files pair them.
COARSE_LABELS = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7),
    *(6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10),
    *(16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16),
    *(12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
)
BLOCKS = [label // 5 for label in range(100)]


def dataset(counts, tree=None, seed=0):
    """Examples of classes of these sizes, mixed; a few others for validation and the test."""
    names = [f"class {label:02}" for label in range(len(counts))]
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    every = np.concatenate([labels, np.arange(len(counts)).repeat(2)])
    examples = Examples.of_source(np.zeros((len(every), 1)), every, names, "DATA")
    start, half = len(labels), len(counts)
    validation, test = np.arange(start, start + half), np.arange(start + half, len(every))
    train = examples.take(np.arange(start))
    paths = None if tree is None else tuple(zip(tree, names, strict=True))
    return Dataset(
        train=train,
        validation=examples.take(validation),
        test=examples.take(test),
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
    for size, expected in ((4, [4, 4, 4]), (10, [10, 7, 10])):
        assert counts(load(given, train_per_class=size)).tolist() == expected
        # In their order, and not those that come first.
        assert (np.diff(places[size]) > 0).all()
        assert places[size].mean() > given.train.places.mean() / 2
    # Pinned: with other ones, results could not be compared.
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


def test_a_class_keeps_what_it_has_in_a_long_tail():
    sizes = counts(load(dataset((3, 200, 50, 7)), imbalance_factor=4))
    tail = counts(load(dataset([200] * 4), imbalance_factor=4))
    assert sorted(tail.tolist()) == [50, 79, 125, 200]
    np.testing.assert_array_equal(sizes, np.minimum(tail, [3, 200, 50, 7]))
    both = load(dataset([200] * 4), imbalance_factor=4, train_per_class=100)
    assert sorted(counts(both).tolist()) == [25, 39, 62, 100]


def test_the_ranks_of_a_long_tail_are_those_of_every_run():
    # Pinned, as the examples are.
    tail = counts(load(dataset([32] * 6), imbalance_factor=32))
    assert tail.tolist() == [32, 1, 2, 8, 4, 16]


def test_a_tail_without_examples_of_a_class_is_refused():
    assert sorted(counts(load(dataset((20, 20)), imbalance_factor=20)).tolist()) == [1, 20]
    message = r"imbalance_factor must be at most 20, the training examples of the largest.* 20\.5$"
    with pytest.raises(UserError, match=message):
        load(dataset((10, 20)), imbalance_factor=20.5)


def test_superclasses_are_those_of_the_files():
    assert SUPERCLASSES == COARSE_LABELS
    assert len({name for names in SUPERCLASS_NAMES.values() for name in names}) == 100


def test_blocks_are_never_a_superclass():
    for start in range(0, 100, 5):
        assert len({*SUPERCLASSES[start : start + 5]}) > 1


GROUPS = {"superclass": SUPERCLASSES, "blocks": BLOCKS, "uniform": [0] * 100}


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("probability", [0.1, 0.4, 1.0])
def test_how_many_labels_change_and_to_what(kind, probability):
    given = dataset([450] * 100, tree=map(str, SUPERCLASSES))
    noisy = load(given, label_noise=probability, label_noise_kind=kind)
    before, after = given.train.labels, noisy.labels
    assert after.dtype == np.int32
    groups = np.array(GROUPS[kind])
    np.testing.assert_array_equal(groups[after], groups[before])
    # A draw gives the label back once in the size of a group. Five standard errors of a share.
    expected = probability * (1 - 1 / (groups == 0).sum())
    error = np.sqrt(expected * (1 - expected) / len(before))
    assert abs((after != before).mean() - expected) <= 5 * error


@pytest.mark.parametrize("probability", [0.3, 1.0])
def test_every_member_of_a_group_is_as_likely(probability):
    # Classes 0 and 2 and classes 1, 3 and 4: groups need be neither equal nor consecutive.
    given = dataset((15_000, 15_000, 0, 0, 0), tree="ababb")
    found = counts(load(given, label_noise=probability, seed=1)) / 15_000
    drawn = np.array([1 / 2, 1 / 3, 1 / 2, 1 / 3, 1 / 3])
    expected = probability * drawn + (1 - probability) * np.array([1, 1, 0, 0, 0])
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
    last = given.train.labels >= 10
    assert {*noisy[last]} == {10, 11}
    message = r"config\.dataset\.label_noise_kind must be blocks or uniform, as nothing is above"
    with pytest.raises(UserError, match=message):
        load(given, label_noise=0.1)
    rows = [f"class {label:02},genus {label % 2}" for label in range(12)]
    (tmp_path / "ranks.csv").write_text("\n".join(["class,genus", *rows]))
    noisy = load(given, label_noise=1.0, taxonomy=str(tmp_path / "ranks.csv")).labels
    np.testing.assert_array_equal(noisy % 2, given.train.labels % 2)
    assert (noisy != given.train.labels).mean() > 0.7
