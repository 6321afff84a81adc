"""The examples of an audit: their names, groups and splits, and their normalized rows."""

import numpy as np
import pytest

from tests.parts.program.data.own import matrices
from tests.parts.program.data.specs import dataset_spec
from train.auditing import examples


def of_file(path, **content):
    spec = dataset_spec(
        {
            "name": "features",
            "path": str(matrices.write(path, **content)),
            "validation_fraction": 0.2,
            "test_fraction": 0.2,
            "unseen_classes": "refuse",
        }
    )
    return examples.of_dataset(spec.load(None), spec)


def test_every_row_is_an_example_with_its_group(tmp_path):
    content = matrices.arrays(20)
    groups = [f"plant {index // 6}" if index % 5 else "" for index in range(60)]
    found = of_file(tmp_path / "a.npz", **content, group=np.array(groups))
    rows = [int(name.removeprefix("row ")) for name in found.names]
    assert sorted(rows) == list(range(60))
    assert [groups[row] for row in rows] == list(found.group_names())
    assert [found.class_names[label] for label in found.labels] == [
        *content["labels"][rows].tolist()
    ]
    # A row without a group is a group of its own.
    assert len(set(found.groups)) == 12 + len(set(filter(None, groups)))
    assert np.unique(found.splits).tolist() == ["test", "train", "validation"]


def test_likely_groups_are_told(tmp_path, caplog):
    content = matrices.arrays(20)
    names = [f"obs{row // 6 * 3 + row % 3}_photo{row % 6 // 3}.jpg" for row in range(60)]
    of_file(tmp_path / "a.npz", **content, names=np.array(names))
    (line,) = caplog.messages
    assert "features: names of files look like those of groups" in line
    assert line.endswith("an array group names them")
    of_file(tmp_path / "b.npz", **content, names=np.array(names), group=np.array(names))
    assert caplog.messages == [line]


@pytest.mark.parametrize("folder", ["a.npz", "a"])
def test_training_rows_have_a_mean_square_length_of_1(tmp_path, folder):
    content = matrices.arrays(20, dtype=np.float32)
    found = of_file(tmp_path / folder, **content)
    # In any order, across the splits.
    order = np.random.default_rng(0).permutation(60)
    rows = found.take(order).rows(np.arange(60))
    numbers = [int(name.removeprefix("row ")) for name in found.names[order]]
    features = content["features"][numbers]
    trained = found.splits[order] == "train"
    centred = features - features[trained].mean(axis=0)
    expected = centred / features[trained].std(axis=0) / 2
    # Of numbers up to some 10 in 32 bits, less means of the same size.
    np.testing.assert_allclose(rows, expected, atol=1e-5)
    assert np.square(rows[trained]).sum(axis=1).mean() == pytest.approx(1, rel=1e-5)
    assert list(found.group_names()) == [""] * 60


def test_examples_in_memory_are_called_by_split_and_number():
    spec = dataset_spec(
        {
            "name": "synthetic_latents",
            "generator": "gaussian",
            "num_classes": 4,
            "num_genera": 2,
            "ambiguity": 1.0,
            "long_tail_exponent": 0.0,
            "num_train": 20,
            "num_validation": 5,
            "num_test": 5,
            "balanced_per_class": 0,
        }
    )
    found = examples.of_dataset(spec.load(None), spec)
    assert found.names[[0, 20, 29]].tolist() == ["train[0]", "validation[0]", "test[4]"]
    assert found.rows(np.arange(30)).shape == (30, len(found.mean))
