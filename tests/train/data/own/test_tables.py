"""Tables of images: their columns, splits and groups, and what is refused."""

import csv

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.train.data.own import pictures
from train.data.own import listing, tables
from train.data.own.listing import Role
from train.foundation.errors import UserError

CLASSES = ("ash", "birch", "cedar")


def write(root, rows, header=("path", "label"), *, name="photos.csv", delimiter=","):
    """Writes a table, and a picture to every path that it lists."""
    pictures.write(root, [row[0] for row in rows])
    with (root / name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return root / name


def find(table, *, validation=0.2, test=0.2):
    where = f"config.dataset.path {table}"
    return listing.split(tables.find(table), where, validation=validation, test=test)


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


SPLIT = ("path", "label", "split")
REFUSED = {
    "no rows": ([], ("path", "label"), r"photos\.csv must list images; it has no rows"),
    "no label column": (rows(2), ("path", "species"), r"columns path and label; it has 'path', 's"),
    "an empty label": (
        [*rows(5), ("a.png", "")],
        ("path", "label"),
        r"row 16: the column label is",
    ),
    "the same path": ([*rows(5), ("ash-0.png", "birch")], ("path", "label"), r"rows 1 and 16 have"),
    "one class": (rows(5, classes=("ash",)), ("path", "label"), r"two classes; it has 1 \(ash\)"),
    "unknown split": ([("a.png", "ash", "dev")], SPLIT, r"row 1: split must be .*; got 'dev'"),
    "nothing to train": ([("a.png", "ash", "test")], SPLIT, r"has no images for training"),
    "unseen class": (
        [("a.png", "ash", "train"), ("b.png", "birch", "test")],
        SPLIT,
        r"row 2: the class 'birch' has images for validation or test, and none for training",
    ),
    "too few": (rows(1), ("path", "label"), r"has no images for validation; give it some, or"),
    "a leak": (
        [
            (f"{label}{n}.png", label, split, f"plant {label}{n // 2}")
            for label in CLASSES
            for n, split in enumerate(["train", "val", "train", "test"])
        ],
        ("path", "label", "split", "group"),
        r"6 groups have images in two splits.*: plant ash0, plant ash1, plant birch0, …",
    ),
    "two columns": (rows(2), ("path", "path"), r"has two columns of one name"),
    "short row": ([*rows(2), ("a.png",)], ("path", "label"), r"row 7: it has 1 columns, and"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_told_with_its_row(tmp_path, case):
    listed, header, message = REFUSED[case]
    with pytest.raises(UserError, match=message):
        find(write(tmp_path, listed, header))


def test_files_that_are_missing_or_of_no_use_are_named(tmp_path):
    table = write(tmp_path, rows(5))
    (tmp_path / "birch-1.png").unlink()
    with pytest.raises(UserError, match=r"there is no file \S+/birch-1\.png; paths are relative"):
        find(table)
    (tmp_path / "birch-2.png").unlink()
    with pytest.raises(UserError, match=r"birch-1\.png \(2 such paths\)"):
        find(table)
    table.write_text("path,label\na.heic,ash\n")
    with pytest.raises(UserError, match=r"row 1: a\.heic has a format that cannot be read"):
        find(table)


def test_what_is_no_table_is_told(tmp_path):
    for name, content, message in (
        ("a.xlsx", b"", r"must be a \.csv, \.tsv or \.parquet file; got 'a\.xlsx'"),
        ("a.csv", b"", r"a\.csv is empty"),
        ("a.csv", b"\xff\xfe\x00", r"a\.csv is not a text in UTF-8"),
        ("a.csv", b'path,label\n"a', r"a\.csv is not a table: unexpected end of data"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=message):
            find(tmp_path / name)
    with pytest.raises(UserError, match=r"must be a table of images; \S+ is a folder"):
        find(tmp_path)
    with pytest.raises(UserError, match=r"must be a table of images; \S+/gone\.csv does not exist"):
        find(tmp_path / "gone.csv")
