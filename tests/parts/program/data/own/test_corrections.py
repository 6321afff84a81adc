"""Corrected labels of all kinds of own data, and what is refused."""

import csv
import dataclasses

import numpy as np
import pytest

from tests.parts.program.data.own import divided, matrices, pictures
from tests.parts.program.data.specs import dataset_spec
from train.data.own import corrections, division, folders, named_splits, tables
from train.data.own.listing import NO_SPLIT, Listing, Role
from train.foundation.errors import UserError
from train.foundation.names import in_utf8

CLASSES = ("ash", "birch", "cedar")
NAMES = tuple(f"{name}/{index}.png" for name in CLASSES for index in range(4))
WHERE = "config.dataset.path photos"


def listing(names=NAMES):
    labels = np.repeat(np.arange(3, dtype=np.int32), 4)
    roles = np.full(12, NO_SPLIT, np.int8)
    return Listing(paths=names, labels=labels, roles=roles, class_names=CLASSES)


def write(folder, *rows, header=("name", "correction"), name="corrected.csv"):
    with (folder / name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(folder / name)


def applied(folder, *rows, names=NAMES, header=("name", "correction")):
    return corrections.apply(
        listing(), write(folder, *rows, header=header), names, where=WHERE, example="image"
    )


def test_a_label_is_corrected_and_an_example_left_out(tmp_path):
    rows = [("ash/1.png", "cedar"), ("birch/0.png", "-"), ("cedar/0.png", "")]
    found, left_out = applied(tmp_path, *rows)
    expected = listing().labels
    expected[1] = 2
    assert found.labels.tolist() == expected.tolist()
    assert np.flatnonzero(left_out).tolist() == [4]
    assert found.digest() != listing().digest()


def test_a_label_and_a_mark_of_no_class_contradict_each_other(tmp_path):
    rows = [("ash/1.png", "cedar", "none of these")]
    with pytest.raises(UserError, match="line 2: it must have a label or the mark 'none of these'"):
        applied(tmp_path, *rows, header=("path", "label", "mark"))


def test_splits_are_held_out_of_what_is_not_left_out(tmp_path):
    # Of three rows of the last class, any one may be left out: one of the two is for training.
    labels = np.repeat([0, 1, 2, 3], [40, 40, 40, 3]).astype(np.int32)
    names = [f"n{index}" for index in range(len(labels))]
    given = Listing(
        labels=labels, roles=np.full(len(labels), NO_SPLIT, np.int8), class_names=tuple("abcd")
    )
    for index in (120, 121, 122):
        table = write(tmp_path, (f"n{index}", "-"))
        asked = dataclasses.replace(fields(table), validation_fraction=0.3, test_fraction=0.3)
        divided = division.divide(given, asked, where="rows", example="row", names=names)
        of_last = divided.roles[120:]
        assert of_last[index - 120] == NO_SPLIT
        assert (of_last == Role.TRAIN).any()


def test_marks_of_a_page_are_corrections(tmp_path):
    found, _ = applied(tmp_path, ("ash/1.png", "cedar"), header=("path", "label"))
    assert found.labels[1] == 2
    # A page has absolute paths, and those of two marks have no label.
    photos = tmp_path / "photos"
    names = ("ash/0.png", "sk\udce4rm.png", *NAMES[2:])
    rows = [(f"{photos}/ash/0.png", "cedar", ""), (rf"{photos}/sk\udce4rm.png", "cedar", "")]
    rows += [
        (f"{photos}/{NAMES[2]}", "", "cannot tell"),
        (f"{photos}/{NAMES[3]}", "", "none of these"),
    ]
    table = write(tmp_path, *rows, header=("path", "label", "mark"))
    found, left_out = corrections.apply(
        listing(names), table, names, where=WHERE, example="image", root=photos
    )
    assert found.labels[:4].tolist() == [2, 2, 0, 0]
    assert not left_out.any()
    # A photograph that is gone is named.
    table = write(tmp_path, (f"{photos}/gone.png", "ash"), header=("path", "label"))
    with pytest.raises(UserError, match=r"has no image .*/photos/gone\.png \(line 2\)"):
        corrections.apply(listing(), table, NAMES, where=WHERE, example="image", root=photos)


def test_absolute_paths_are_those_of_the_photographs(tmp_path):
    pictures.write(tmp_path / "photos", NAMES)
    (tmp_path / "link").symlink_to("photos")
    marks = write(tmp_path, (f"{tmp_path}/photos/ash/1.png", "cedar"), header=("path", "label"))
    for folder in ("photos", "link"):
        found = folders.find(tmp_path / folder, nested=False).divided(fields(marks)).listing
        assert found.labels[found.paths.index("ash/1.png")] == 2
    other = write(tmp_path, (f"{tmp_path}/others/ash/1.png", "cedar"), header=("path", "label"))
    with pytest.raises(UserError, match=r"has no image .*/others/ash/1.png"):
        folders.find(tmp_path / "photos", nested=False).divided(fields(other))
    # Features do not tell the folder.
    found, _ = corrections.apply(listing(), other, NAMES, where=WHERE, example="row")
    assert found.labels[1] == 2


def test_names_of_any_characters_are_found(tmp_path):
    names = ('a,"b".png', "two\nlines.png", "not utf-8 \udcff.png", "Che\u0302ne.png", *NAMES[4:])
    rows = [(in_utf8(name), "cedar") for name in (*names[:3], "Ch\u00eane.png")]
    found, _ = applied(tmp_path, *rows, names=names)
    assert found.labels[:4].tolist() == [2] * 4


def test_a_table_may_list_an_example_twice_alike(tmp_path):
    found, _ = applied(tmp_path, ("ash/1.png", "cedar"), ("ash/1.png", "cedar"), ("ash/1.png", ""))
    assert found.labels[1] == 2


REFUSED = {
    "a class": ([("ash/1.png", "ceder")], "line 2: .*'ceder'"),
    "no example": ([("ash/0.png", ""), ("elm/1.png", "-")], r"elm/1.png \(line 3\)"),
    "two corrections": (
        [("ash/1.png", "cedar"), ("ash/0.png", ""), ("ash/1.png", "birch")],
        "line 2 and line 4 .* ash/1.png",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(tmp_path, what):
    rows, message = REFUSED[what]
    with pytest.raises(UserError, match=f"^config.dataset.corrections .*{message}"):
        applied(tmp_path, *rows)


def test_a_name_of_several_examples_is_refused(tmp_path):
    names = ("ash/1.png",) * 2 + NAMES[2:]
    with pytest.raises(UserError, match=r"line 2: several images of .* are called ash/1.png"):
        applied(tmp_path, ("ash/1.png", "cedar"), names=names)


def test_rows_of_other_data_are_refused(tmp_path):
    header = ("name", "label", "correction")
    with pytest.raises(
        UserError, match=r"the label of row 1 must be 'ash', as in .*; got 'birch'"
    ) as error:
        applied(tmp_path, ("row 1", "birch", "cedar"), names=(), header=header)
    assert error.value.usually == "the table is for other data"


# Through the doors of the kinds


def fields(corrected, **changed):
    return dataclasses.replace(divided.fields(**changed), corrections=corrected)


def test_a_folder_and_a_table_are_corrected(tmp_path):
    pictures.write(tmp_path / "photos", NAMES)
    rows = [("ash/1.png", "cedar"), ("birch/0.png", "-")]
    corrected = fields(write(tmp_path, *rows), validation=0.25, test=0.25)
    with (tmp_path / "photos" / "photos.csv").open("w") as file:
        csv.writer(file).writerows(
            [("path", "label"), *((name, name.split("/")[0]) for name in NAMES)]
        )
    for found in (
        folders.find(tmp_path / "photos", nested=False),
        tables.find(tmp_path / "photos" / "photos.csv"),
    ):
        listing = found.divided(corrected).listing
        places = {path: index for index, path in enumerate(listing.paths)}
        assert listing.labels[places["ash/1.png"]] == 2
        assert np.flatnonzero(listing.roles == NO_SPLIT).tolist() == [places["birch/0.png"]]
        assert found.divided(corrected).digest != found.divided(divided.fields()).digest


def test_images_of_named_splits_are_called_by_split_and_number(tmp_path):
    # As those of `huggingface` and `tfds`, whose test images stay in the test.
    labels = {
        Role.TRAIN: ("train", np.repeat(np.arange(3, dtype=np.int32), 8)),
        Role.TEST: ("test", np.arange(3, dtype=np.int32)),
    }
    given = named_splits.listed(labels, CLASSES, WHERE)
    table = write(tmp_path, ("train[1]", "cedar"), ("test[0]", "birch"), ("train[0]", "-"))
    found = division.divide(given, fields(table), where=WHERE, example="image")
    assert found.labels[[1, 24]].tolist() == [2, 1]
    assert found.roles[[0, 24]].tolist() == [NO_SPLIT, Role.TEST]


def test_features_are_corrected_by_name_or_number(tmp_path):
    content = matrices.arrays(10)
    names = np.array([f"{index}.png" for index in range(30)])
    rows = {
        "named": [("3.png", "birch"), ("4.png", "-")],
        "numbered": [("row 3", "birch"), ("row 4", "-")],
    }
    found = {}
    for kind, arrays in (("named", {**content, "names": names}), ("numbered", content)):
        path = matrices.write(tmp_path / f"{kind}.npz", **arrays)
        spec = {
            "name": "features",
            "path": str(path),
            "validation_fraction": 0.2,
            "test_fraction": 0.2,
            "unseen_classes": "refuse",
        }
        before = dataset_spec(spec).load(None)
        table = write(tmp_path, *rows[kind], name=f"{kind}.csv")
        found[kind] = after = dataset_spec(spec | {"corrections": table}).load(None)
        assert after.digest != before.digest
        parts = (after.train, after.validation, after.test)
        of_row = {
            int(row): int(label)
            for part in parts
            for row, label in zip(part.images.indices, part.labels, strict=True)
        }
        assert of_row[3] == 1
        assert of_row.keys() == set(range(30)) - {4}
    assert found["named"].digest == found["numbered"].digest
    assert found["numbered"].train.names is None
    assert all(
        name == f"{row}.png"
        for row, name in zip(
            found["named"].train.images.indices, found["named"].train.names, strict=True
        )
    )


def test_a_class_without_training_examples_is_noticed(tmp_path):
    given = listing()
    table = write(tmp_path, *((name, "-") for name in NAMES[:4]))
    with pytest.raises(UserError, match="has no training image of ash"):
        division.divide(given, fields(table), where=WHERE, example="image")
