"""Which labels an audit judges, in which folds, and what it estimates."""

import numpy as np
import pytest
import sklearn.datasets

from tests import reference
from tests.parts.program.data import matrices
from tests.parts.program.data.specs import dataset_spec
from train.auditing import findings
from train.data import Examples
from train.data.classes import Classes
from train.foundation.errors import UserError
from train.scores.scores import Scores


def examples(features, labels, groups=None):
    return Examples.of_source(features, labels, "0123456789", "rows", groups=groups)


def find(features, labels, groups=None):
    std = features.std(axis=0)
    std[std == 0] = 1
    given = examples(features, labels, groups)
    return findings.find(given, features.mean(axis=0), std, num_folds=5, seed=0)


def test_the_pairs_are_the_calibrated_confident_joint(rng):
    probabilities = rng.dirichlet(np.full(10, 0.4), size=500).astype(np.float32)
    drawn = rng.integers(5, size=500)
    labels = np.where(rng.random(500) < 0.7, probabilities.argmax(axis=1), drawn).astype(np.int32)
    # Nobody has the label 5, and no example of the label 4 confidently belongs to its class.
    labels[labels == 5] = 0
    probabilities[labels == 4] = [0.3, 0.3, 0.2, 0.1, 0.05, 0.05, 0, 0, 0, 0]
    given = examples(np.zeros((500, 1), np.float32), labels)
    zeros, classes = np.zeros(500), Classes.of(given.class_names)
    scores = Scores(values=probabilities, labels=labels, ranks=zeros, loss=zeros, classes=classes)
    found = findings.of_probabilities(given, given.take(np.arange(0)), scores)
    joint = reference.confident_joint(probabilities, labels)
    wrong = joint * (np.bincount(labels, minlength=10) / joint.sum(axis=1).clip(1))[:, None]
    np.fill_diagonal(wrong, 0)
    label, likely, numbers = found.pairs
    assert {*zip(label, likely, strict=True)} == {*zip(*np.nonzero(wrong), strict=True)}
    np.testing.assert_allclose(numbers, wrong[label, likely], rtol=1e-12)
    assert (np.diff(numbers) <= 0).all()
    np.testing.assert_allclose(found.wrong_by_class, wrong.sum(axis=1), rtol=1e-12)
    # The order is that of the ratio of probabilities.
    others = np.where(np.eye(10, dtype=bool)[labels], 0, probabilities).max(axis=1)
    ratios = probabilities[np.arange(500), labels] / others
    # Logarithms in 32 bits are good to a few units of their last digit.
    known = ratios > 0
    np.testing.assert_allclose(found.margins[known], np.log(ratios[known]), atol=1e-5)
    assert (np.diff(found.margins[found.order]) >= 0).all()


def test_neither_an_example_nor_its_group_vouches_for_it(rng):
    # Labels that say nothing, which a copy in another fold agrees with. There are more features
    # than examples: a head that has seen a label agrees with it.
    features = np.repeat(rng.normal(size=(200, 300)).astype(np.float32), 2, axis=0)
    labels = np.repeat(rng.integers(2, size=200), 2)
    groups = np.repeat(np.arange(200), 2).astype(str).astype(object)
    # By chance it is a half, with a standard error of 0.035.
    assert abs(find(features, labels, groups).accuracy - 0.5) < 4 * 0.035
    assert find(features, labels).accuracy > 0.75


def test_every_row_of_a_file_is_an_example_with_its_group_and_split(tmp_path):
    content = matrices.arrays(20)
    groups = [f"plant {index // 6}" if index % 5 else "" for index in range(60)]
    path = matrices.write(tmp_path / "a.npz", **content, group=np.array(groups))
    fractions = {"validation_fraction": 0.2, "test_fraction": 0.2, "unseen_classes": "refuse"}
    dataset = dataset_spec({"name": "features", "path": str(path), **fractions}).load(None)
    parts = [dataset.train, dataset.validation, dataset.test]
    found = findings.joined(parts)
    names = found.names_of(np.arange(60))
    rows = [int(name.removeprefix("row ")) for name in names]
    assert sorted(rows) == list(range(60))
    assert [groups[row] for row in rows] == list(found.groups)
    assert [found.class_names[one] for one in found.labels] == content["labels"][rows].tolist()
    np.testing.assert_array_equal(found.rows(np.arange(60)), content["features"][rows])
    known = [part.names_of(np.arange(len(part))).tolist() for part in parts]
    assert [names[found.splits == split].tolist() for split in range(3)] == known


def test_classes_that_are_in_one_fold_are_not_judged():
    features, labels = (one[:400] for one in sklearn.datasets.load_digits(return_X_y=True))
    # The classes 7, 8 and 9 have an example, a group, and two examples.
    kept = np.flatnonzero(labels < 7)
    rare = [np.flatnonzero(labels == label)[:2] for label in (7, 8, 9)]
    chosen = np.concatenate([kept, rare[0][:1], rare[1], rare[2]])
    groups = np.full(len(chosen), "", object)
    groups[-4:-2] = "a group"
    found = find(features[chosen], labels[chosen], groups)
    assert found.others.labels.tolist() == [7, 8, 8]
    assert len(found.examples) == len(kept) + 2
    assert found.wrong_by_class[7:9].tolist() == [0, 0]
    # Three examples of each class make three folds.
    few = np.concatenate([np.flatnonzero(labels == label)[:3] for label in range(7)])
    assert len(find(features[few], labels[few]).examples) == 21
    with pytest.raises(UserError, match="no label can be judged"):
        find(features[:2], np.array([0, 1]))
