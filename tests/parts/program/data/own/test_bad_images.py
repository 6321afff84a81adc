"""Folders and tables of images that cannot be trained on: each is told in one line.

Those of tensorflow-datasets are in `test_tfds_images.py`.
"""

import csv

import pyarrow
import pytest
from pyarrow import parquet

from configs import folder, table
from tests.parts.program.data.own import pictures, refused
from tests.parts.program.data.own.test_own_images_run import small

CLASSES = ("ash", "birch", "cedar")


def configured(recipe, path, **fields):
    """A recipe for three classes."""
    usual = {"eval.ks": (1, 2), "loss.k": 1, "select_by": "top_1_accuracy"}
    return small(recipe, path, **usual | fields)


def photos(*classes, each=5):
    """Makes a folder of photographs."""
    return lambda root: pictures.write_classes(root, classes or CLASSES, each)


def linked(name, target):
    """Makes a folder of photographs with a link in it."""

    def make(root):
        pictures.write_classes(root, CLASSES, 5)
        (root / name).symlink_to(target)

    return make


def splits(**classes):
    """Makes a folder with a folder for each split, with its classes."""

    def make(root):
        for name, of_split in classes.items():
            (root / name).mkdir(parents=True)
            pictures.write_classes(root / name, of_split, 5)

    return make


# What makes the folder, what the line names of it, and fields of `config`.
FOLDERS = {
    "nothing": (lambda root: None, "ROOT", {}),
    "an empty folder": (lambda root: root.mkdir(), "ROOT", {}),
    "an empty class": (
        lambda root: [photos()(root), (root / "dogwood").mkdir()],
        "ROOT/dogwood",
        {},
    ),
    "one class": (photos("ash"), "(ash)", {}),
    "too few classes for the sets": (
        photos(),
        "--config.eval.ks='(1,2)' --config.select_by=top_2_accuracy",
        {"eval.ks": (1, 2, 5), "select_by": "top_1_accuracy"},
    ),
    "beside the classes": (
        lambda root: [photos()(root), pictures.write(root, ["stray.png"])],
        "ROOT/CLASS/stray.png",
        {},
    ),
    "a link to no image": (linked("ash/a.png", "gone.png"), "ash/a.png of ROOT", {}),
    "two validations": (
        splits(train=CLASSES, val=CLASSES, validation=CLASSES),
        "val and validation are both",
        {},
    ),
    "something beside splits": (
        splits(train=CLASSES, val=CLASSES, test=CLASSES, unlabeled=("x",)),
        "(unlabeled)",
        {},
    ),
    "no split for training": (splits(val=CLASSES, test=CLASSES), "(test, val)", {}),
    "splits below": (
        lambda root: splits(train=CLASSES, test=CLASSES)(root / "flowers"),
        "in ROOT, the folder flowers",
        {},
    ),
    "an empty split": (splits(train=CLASSES, val=CLASSES, test=()), "no images for test", {}),
    "too few images": (photos(each=1), "config.dataset.validation_fraction", {}),
    "an empty path": (photos(), "config.dataset.path", {"dataset.path": ""}),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_that_cannot_be_used_is_told(tmp_path, capfd, case):
    make, message, fields = FOLDERS[case]
    root = tmp_path / "photos"
    make(root)
    line = refused.line_of(configured(folder, root, **fields), tmp_path, capfd)
    assert message.replace("ROOT", str(root)) in line


def rows(each=5):
    return [(f"{name}-{index}.png", name) for name in CLASSES for index in range(each)]


def written(*listed, header=("path", "label"), missing=()):
    """Writes a table, and a picture to every path that it lists but to those that are missing."""

    def make(root):
        pictures.write(root, {row[0] for row in listed} - {*missing})
        with (root / "photos.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *listed])
        return root / "photos.csv"

    return make


def holding(content, *, name="photos.csv"):
    """Writes a file with some content."""

    def make(root):
        (root / name).write_bytes(content)
        return root / name

    return make


def in_parquet(**columns):
    def make(root):
        parquet.write_table(pyarrow.table(columns), root / "photos.parquet")
        return root / "photos.parquet"

    return make


# What makes the table, and what the line names of it.
TABLES = {
    "nothing": (lambda root: root / "gone.csv", "TABLE"),
    "another format": (holding(b"", name="a.xlsx"), "'a.xlsx'"),
    "an empty file": (holding(b""), "TABLE is empty"),
    "not UTF-8": (holding(b"\xff\xfe\x00"), "TABLE"),
    "an open quote": (holding(b'path,label\n"a'), "TABLE is not a table: line 2"),
    "no label": (written(*rows(2), header=("path", "species")), "columns path and label"),
    # Otherwise it would be no group.
    "a capital letter": (
        written(*((*row, "1") for row in rows(2)), header=("path", "label", "Group")),
        "the column 'Group'",
    ),
    "a long row": (holding(b"path,label\na.png,ash,,what\n"), "TABLE, line 2: "),
    "two columns of one name": (written(*rows(2), header=("path", "path")), "two columns"),
    "an empty label": (written(*rows(), ("a.png", " ")), "TABLE, line 17: the column label"),
    "one path in two forms": (
        written(*rows(), ("ash-0\u200b.png", "birch"), missing=["ash-0\u200b.png"]),
        "line 2 and line 17",
    ),
    "a path spelled in two ways": (
        written(*rows(), ("./ash-0.png", "birch")),
        "line 2 and line 17",
    ),
    "no file": (written(*rows(), missing=[path for path, _ in rows()]), "ash-0.png (line 2)"),
    "an unknown split": (
        written(("a.png", "ash", "extra"), header=("path", "label", "split")),
        "TABLE, line 2: split must be ",
    ),
    "no Parquet": (holding(b"PAR1", name="photos.parquet"), "TABLE"),
    "a missing value in Parquet": (
        in_parquet(path=["a.png", "b.png"], label=["ash", None]),
        "TABLE, row 2: the column label",
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_that_cannot_be_used_is_told(tmp_path, capfd, case):
    make, message = TABLES[case]
    root = tmp_path / "photos"
    root.mkdir()
    path = make(root)
    line = refused.line_of(configured(table, path), tmp_path, capfd)
    assert message.replace("TABLE", str(path)).replace("ROOT", str(root)) in line
