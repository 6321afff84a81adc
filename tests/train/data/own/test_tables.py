"""Tables of images: their columns, splits and groups, and what is refused."""

import csv
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.train.data.own import pictures
from train.data.own import division, tables
from train.data.own.division import Division
from train.data.own.found_images import Files
from train.data.own.listing import Role

CLASSES = ("ash", "birch", "cedar")


def write(root, rows, header=("path", "label"), *, name="photos.csv", delimiter=","):
    """Writes a table, and a picture to every path that it lists."""
    pictures.write(root, [row[0] for row in rows])
    with (root / name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return root / name


def find(table, *, validation=0.2, test=0.2):
    where = f"config.dataset.path {table}"
    return division.split(tables.find(table), where, Division(validation, test))


def rows(each, *, classes=CLASSES):
    return [(f"{name}-{index}.png", name) for name in classes for index in range(each)]


def counts(found):
    return [
        np.bincount(found.labels[found.of_role(role)], minlength=len(found.class_names)).tolist()
        for role in Role
    ]


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t"), ("a.CSV", ",")])
def test_paths_and_labels(tmp_path, name, delimiter):
    found = find(write(tmp_path, rows(10), name=name, delimiter=delimiter))
    assert found.class_names == CLASSES
    assert found.paths == tuple(path for path, _ in rows(10))
    assert [CLASSES[label] for label in found.labels] == [label for _, label in rows(10)]
    assert counts(found) == [[6] * 3, [2] * 3, [2] * 3]


def test_paths_may_be_absolute(tmp_path):
    listed = [(str(tmp_path / "elsewhere" / path), label) for path, label in rows(10)]
    (tmp_path / "tables").mkdir()
    found = find(write(tmp_path / "tables", listed))
    files = Files(found.root, found.paths)
    assert files[0] == {"image": Path(listed[0][0]).read_bytes(), "file_name": listed[0][0]}
    assert files[0]["image"]


def test_parquet(tmp_path):
    write(tmp_path, rows(10))
    columns = dict(zip(("path", "label"), map(list, zip(*rows(10), strict=True)), strict=True))
    parquet.write_table(pyarrow.table(columns), tmp_path / "photos.parquet")
    found, expected = find(tmp_path / "photos.parquet"), find(tmp_path / "photos.csv")
    assert found.paths == expected.paths
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.roles, expected.roles)


def test_other_columns_spaces_and_marks_of_spreadsheets_do_no_harm(tmp_path):
    table = write(tmp_path, [(*row, "x") for row in rows(5)], ("path", " label ", "observer"))
    table.write_bytes(b"\xef\xbb\xbf" + table.read_bytes() + b"\r\n\r\n")
    assert len(find(table)) == 15


def test_quoted_names_with_commas_and_line_breaks(tmp_path):
    classes = ("Acer, field", 'the "red" one')
    found = find(write(tmp_path, [(f"{n}.png", classes[n % 2]) for n in range(10)]))
    assert found.class_names == classes


def test_labels_may_be_numbers(tmp_path):
    found = find(write(tmp_path, [(f"{n}.png", n % 2 + 7) for n in range(10)]))
    assert found.class_names == ("7", "8")


def test_given_splits_are_kept(tmp_path):
    splits = ["train", "Train", "val", "validation", "test"]
    listed = [(path, label, splits[n % 5]) for n, (path, label) in enumerate(rows(5))]
    found = find(write(tmp_path, listed, ("path", "label", "split")))
    assert counts(found) == [[2] * 3, [2] * 3, [1] * 3]


def test_groups_stay_together(tmp_path):
    listed = [(path, label, f"{label}{n // 2}") for n, (path, label) in enumerate(rows(20))]
    found = find(write(tmp_path, listed, ("path", "label", "group")))
    assert counts(found) == [[12] * 3, [4] * 3, [4] * 3]
    groups = np.array([group for _, _, group in listed])
    for group in np.unique(groups):
        assert len(set(found.roles[groups == group])) == 1
