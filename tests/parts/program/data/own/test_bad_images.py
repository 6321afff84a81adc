"""Folders and tables of images that cannot be trained on: each is told in one line.

Those of tensorflow-datasets are in `test_tfds_images.py`.
"""

import csv
import json

import pyarrow
import pytest
from pyarrow import parquet

from configs import folder, table
from tests.parts.program.data.own import pictures, refused

CLASSES = ("ash", "birch", "cedar")


def small(recipe, path, **fields):
    """A recipe for three classes."""
    config = recipe.get_config()
    config.dataset.update(path=str(path), batch_size=8)
    config.model.name = "mlp"
    config.eval.ks = (1, 2)
    config.loss.k = 1
    config.select_by = "top_1_accuracy"
    config.update_from_flattened_dict(fields)
    return json.loads(config.to_json())


def photos(*classes, each=5):
    """Makes a folder of photographs."""
    return lambda root: pictures.write_classes(root, classes or CLASSES, each)


def also(*names):
    """Makes a folder of photographs with other files in it, which are no images."""

    def make(root):
        pictures.write_classes(root, CLASSES, 5)
        for name in names:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_bytes(b"x")

    return make


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


def empty_class_in_a_split(root):
    splits(train=CLASSES, val=CLASSES)(root)
    (root / "val" / "dogwood").mkdir()


NO_CLASS = "must be in the folder of a class, as ROOT/CLASS/stray.png"
# What makes the folder, what the line says, and fields of `config`.
FOLDERS = {
    "nothing": (lambda root: None, "path must be a folder with images; ROOT does not exist", {}),
    "a file": (lambda root: root.touch(), "must be a folder with images; ROOT is a file", {}),
    "a broken link": (lambda root: root.symlink_to("gone"), "images; ROOT does not exist", {}),
    "a link to itself": (lambda root: root.symlink_to(root), "images; ROOT does not exist", {}),
    "an empty folder": (lambda root: root.mkdir(), "ROOT must be a folder with images; there", {}),
    "empty classes": (photos(each=0), "path must be a folder with images; ROOT does not", {}),
    "no image": (
        lambda root: [(root / "ash").mkdir(parents=True), (root / "ash" / "notes.txt").touch()],
        "ROOT must be a folder with images; there are none",
        {},
    ),
    "only hidden images": (
        lambda root: pictures.write(root, [".ash/a.png", "birch/.b.png"]),
        "ROOT must be a folder with images; there are none",
        {},
    ),
    "an empty class": (
        lambda root: [photos()(root), (root / "dogwood").mkdir()],
        "the folder of a class ROOT/dogwood has no images; add some, or delete it",
        {},
    ),
    "a class of Thumbs.db": (
        also("dogwood/Thumbs.db", "dogwood/desktop.ini"),
        "the folder of a class ROOT/dogwood has no images",
        {},
    ),
    "an empty class in a split": (empty_class_in_a_split, "of a class ROOT/val/dogwood has no", {}),
    "a class that is the folder": (linked("loop", "."), "of a class ROOT/loop has no images", {}),
    "one class": (photos("ash"), "ROOT must have at least two classes; it has 1 (ash)", {}),
    "one class with folders in it": (
        lambda root: pictures.write_classes(root, ["acer/rubrum", "acer/campestre"], 5),
        "ROOT must have a folder for each class; it has one, acer, with folders in it; config.da",
        {},
    ),
    "too few classes for the sets": (
        photos(),
        "for 3 classes give --config.eval.ks='(1,2)' --config.select_by=top_2_accuracy",
        {"eval.ks": (1, 2, 5), "select_by": "top_1_accuracy"},
    ),
    "one nested class": (
        lambda root: pictures.write_classes(root, ["acer/rubrum"], 5),
        "ROOT must have at least two classes; it has 1 (acer/rubrum)",
        {"dataset.nested": True},
    ),
    "beside the classes": (
        lambda root: [photos()(root), pictures.write(root, ["stray.png"])],
        NO_CLASS,
        {},
    ),
    "beside nested classes": (
        lambda root: [photos()(root), pictures.write(root, ["stray.png"])],
        NO_CLASS,
        {"dataset.nested": True},
    ),
    "a link to no image": (linked("ash/a.png", "gone.png"), "read ash/a.png of ROOT: No such", {}),
    "a loop of links": (linked("ash/a.png", "a.png"), "read ash/a.png of ROOT: Too many", {}),
    "not trained on": (
        splits(train=CLASSES, val=(*CLASSES, "dogwood")),
        "ROOT has no training image of dogwood, but 5 for validation; config",
        {},
    ),
    "two validations": (
        splits(train=CLASSES, val=CLASSES, validation=CLASSES),
        "ROOT must have one folder for each split; it has train, val, validation, and val and valid"
        "ation are both for validation: move the images into one of them",
        {},
    ),
    "two validations in other words": (
        splits(Train=CLASSES, Val=CLASSES, DEV=CLASSES),
        "it has DEV, Train, Val, and DEV and Val are both for validation",
        {},
    ),
    "something beside splits": (
        splits(train=CLASSES, val=CLASSES, test=CLASSES, unlabeled=("x",)),
        "ROOT has folders of splits (test, train, val) beside others (unlabeled): move the others "
        "elsewhere; or, if all are classes, put the images of each directly into its folder",
        {},
    ),
    "something beside nested splits": (
        splits(Training=CLASSES, rest=("x",)),
        "ROOT has folders of splits (Training) beside others (rest): move the others elsewhere",
        {"dataset.nested": True},
    ),
    "no split for training": (
        splits(val=CLASSES, test=CLASSES),
        "ROOT has folders of splits (test, val), and none for training: add a folder train; a",
        {},
    ),
    "splits below": (
        lambda root: splits(train=CLASSES, test=CLASSES)(root / "flowers"),
        "config.dataset.path must be the folder with the folders of splits, and these must have "
        "the folders of classes, as in test/CLASS; in ROOT, the folder flowers has test, train",
        {},
    ),
    "splits in classes": (
        lambda root: [splits(Train=("1",), Test=("1",))(root / name) for name in CLASSES],
        "in ROOT, the folder ash has Test, Train",
        {"dataset.nested": True},
    ),
    "an empty split": (
        splits(train=CLASSES, val=CLASSES, test=()),
        "ROOT has no images for test of a class with images for training; give it some",
        {},
    ),
    "nothing to train on": (splits(train=(), val=CLASSES), "ROOT has no images for training", {}),
    "too few images": (
        photos(each=1),
        "ROOT has no images for validation; give it some, or a larger config.dataset.validation_fr",
        {},
    ),
    "no part for the test": (photos(), "has no images for test; ", {"dataset.test_fraction": 0.0}),
    "less than a batch": (
        photos(),
        "batch_size must be at most the 9 training examples; got 64",
        {"dataset.batch_size": 64},
    ),
    "sets larger than the classes": (
        photos(),
        "config.eval.ks must be",
        {"eval.ks": (1, 4)},
    ),
    "no path": (
        photos(),
        "config.dataset.path must be the path of a file or a folder; got None",
        {"dataset.path": None},
    ),
    "an empty path": (
        photos(),
        "config.dataset.path must be the path of a file or a folder; got ''",
        {"dataset.path": ""},
    ),
    "an unknown augmentation": (
        photos(),
        "augmentation must be one of crop_flip, flip, none, randaugment, random_resized_crop (did "
        "you mean 'flip'?); got 'flips'",
        {"dataset.augmentation": "flips"},
    ),
    "no size": (
        photos(),
        "image_size must be an integer from 1 to 4096, or None; got 0",
        {"dataset.image_size": 0},
    ),
    "all for validation": (
        photos(),
        "validation_fraction must be a finite number at least 0 and less than 1; got 1.0",
        {"dataset.validation_fraction": 1.0},
    ),
    "nothing left for training": (
        photos(),
        "must leave examples for training; got 0.15 and 0.9",
        {"dataset.test_fraction": 0.9},
    ),
    "an unknown normalization": (
        photos(),
        "normalization must be one of half, imagenet; got 'none'",
        {"dataset.normalization": "none"},
    ),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_that_cannot_be_used_is_told(tmp_path, capfd, case):
    make, message, fields = FOLDERS[case]
    root = tmp_path / "photos"
    make(root)
    line = refused.line_of(small(folder, root, **fields), tmp_path, capfd)
    assert message.replace("ROOT", str(root)) in line


def rows(each=5, *, classes=CLASSES):
    return [(f"{name}-{index}.png", name) for name in classes for index in range(each)]


def written(*listed, header=("path", "label"), name="photos.csv", missing=()):
    """Writes a table, and a picture to every path that it lists but to those that are missing."""

    def make(root):
        pictures.write(root, {row[0] for row in listed} - {*missing})
        with (root / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter="\t" if name.endswith(".tsv") else ",").writerows(
                [header, *listed]
            )
        return root / name

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


def a_folder_called_csv(root):
    (root / "photos.csv").mkdir()
    return root / "photos.csv"


SPLIT = ("path", "label", "split")
GROUP = ("path", "label", "group")
# What makes the table, and what the line says.
TABLES = {
    "nothing": (lambda root: root / "gone.csv", "must be a table of images; TABLE does not exist"),
    "a folder": (lambda root: root, "must be a table of images; TABLE is a folder"),
    "a folder called csv": (a_folder_called_csv, "must be a table of images; TABLE is a folder"),
    "another format": (
        holding(b"", name="a.xlsx"),
        "must be a .csv, .tsv or .parquet file; got 'a.xlsx'",
    ),
    "an empty file": (holding(b""), "TABLE is empty"),
    "blank lines": (holding(b"\n\n"), "TABLE is empty"),
    "not UTF-8": (holding(b"\xff\xfe\x00"), "TABLE is not a text in UTF-8"),
    "a table of an old Excel": (
        holding("path,label\na.png,hêtre\n".encode("cp1252")),
        "invalid continuation byte; save it as CSV UTF-8",
    ),
    "an open quote": (holding(b'path,label\n"a'), "TABLE is not a table: line 2: unexpected end "),
    "no rows": (written(), "TABLE must list images; it has no rows"),
    "no label": (
        written(*rows(2), header=("path", "species")),
        "TABLE must have the columns path and label; it has 'path', 'species'",
    ),
    "a capital letter": (
        written(*((*row, "1") for row in rows(2)), header=("path", "label", "Group")),
        "TABLE: the column 'Group' must be called 'group', in lower case",
    ),
    "no header": (
        holding(b"a.png,ash\nb.png,birch\n"),
        "must have the columns path and label; it has 'a.png', 'ash'",
    ),
    "other separators": (
        holding(b"path:label\na.png:ash\n"),
        "must have the columns path and label; it has 'path:label'",
    ),
    "half a UTF-16": (
        holding("path,label".encode("utf-16")[:-1]),
        "TABLE is not a text in UTF-8, or in the encoding of its byte order mark: 'utf-16-le'",
    ),
    "UTF-16 without a mark": (
        holding("path,label\na,b\n".encode("utf-16-le")),
        "TABLE is not a table: it has characters that are zero; save it as UTF-8",
    ),
    "a long row": (
        holding(b"path,label\na.png,ash,,what\n"),
        "TABLE, line 2: it has 4 columns, and the first line has 2",
    ),
    "a path with backslashes": (
        holding(b"path,label\nimg\\a.png,ash\n"),
        "TABLE: none of the files exists: img\\a.png (line 2); paths are relative to ROOT, and",
    ),
    "a path of Windows": (
        holding(b"path,label\nC:\\img\\a.png,ash\n"),
        "C:\\img\\a.png (line 2); paths are relative to ROOT, and a path with a drive of Windows",
    ),
    "a path that cannot be seen as it is": (
        holding("path,label\na\u200b.png,ash\n".encode()),
        "none of the files exists: a\u200b.png (a<U+200B>.png) (line 2); paths are relative to",
    ),
    "one path in two forms": (
        written(*rows(), ("ash-0\u200b.png", "birch"), missing=["ash-0\u200b.png"]),
        "TABLE: line 2 and line 17 have the same path, ash-0.png",
    ),
    "two columns of one name": (
        written(*rows(2), header=("path", "path")),
        "TABLE has two columns of one name",
    ),
    "a short row": (
        written(*rows(2), ("a.png",)),
        "TABLE, line 8: it has 1 columns, and the first",
    ),
    "an empty path": (written(*rows(2), ("", "ash"), missing=[""]), "line 8: the column path is"),
    "an empty label": (
        written(*rows(), ("a.png", " ")),
        "TABLE, line 17: the column label is empty",
    ),
    "a path listed twice": (
        written(*rows(), ("ash-0.png", "birch")),
        "TABLE: line 2 and line 17 have the same path, ash-0.png",
    ),
    "a path spelled in two ways": (
        written(*rows(), ("./ash-0.png", "birch")),
        "TABLE: line 2 and line 17 have the same path, ./ash-0.png",
    ),
    "a missing file": (
        written(*rows(), missing=["birch-1.png"]),
        "cannot read birch-1.png of ROOT: No such file or directory; the command of the run with",
    ),
    "two missing files": (
        written(*rows(), missing=["birch-1.png", "birch-2.png"]),
        "2 images of ROOT cannot be read: birch-1.png, birch-2.png; the command of the run with",
    ),
    "no file": (
        written(*rows(), missing=[path for path, _ in rows()]),
        "TABLE: none of the files exists: ash-0.png (line 2), ash-1.png (line 3), ash-2.png (line "
        "4), ash-3.png (line 5), ash-4.png (line 6), birch-0.png (line 7), birch-1.png (line 8), "
        "birch-2.png (line 9), birch-3.png (line 10), birch-4.png (line 11), …; paths are relative",
    ),
    "the path of a folder": (
        holding(b"path,label\n.,ash\n"),
        "TABLE: none of the files exists: . (line 2)",
    ),
    "one class": (written(*rows(classes=["ash"])), "at least two classes; it has 1 (ash)"),
    "an unknown split": (
        written(("a.png", "ash", "extra"), header=SPLIT),
        "TABLE, line 2: split must be train, val or test, or empty for an example without a split; "
        "got 'extra'",
    ),
    "nothing to train on": (
        written(("a.png", "ash", "test"), header=SPLIT),
        "TABLE has no images for training",
    ),
    "not trained on": (
        written(("a.png", "ash", "train"), ("b.png", "birch", "test"), header=SPLIT),
        "TABLE has no training image of birch, but 1 for the test; config.data"
        "set.unseen_classes=leave_out leaves them out, and count_as_unknown counts those of the",
    ),
    "too few images": (
        written(*rows(1)),
        "TABLE has no images for validation; give it some, or a larger config.dataset.validation_f",
    ),
    "one group in a class": (
        written(*[(path, label, label) for path, label in rows()], header=GROUP),
        "TABLE has no images for validation",
    ),
    "no Parquet": (holding(b"PAR1", name="photos.parquet"), "TABLE is not a Parquet file: "),
    "no label in Parquet": (
        in_parquet(path=["a.png"], species=["ash"]),
        "TABLE must have the columns path and label; it has 'path', 'species'",
    ),
    "a missing value in Parquet": (
        in_parquet(path=["a.png", "b.png"], label=["ash", None]),
        "TABLE, row 2: the column label is empty",
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_that_cannot_be_used_is_told(tmp_path, capfd, case):
    make, message = TABLES[case]
    root = tmp_path / "photos"
    root.mkdir()
    path = make(root)
    line = refused.line_of(small(table, path), tmp_path, capfd)
    assert message.replace("TABLE", str(path)).replace("ROOT", str(root)) in line
