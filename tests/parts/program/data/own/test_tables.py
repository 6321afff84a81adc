"""Tables of images: how they are written, their splits, and what is left out."""

import csv

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.parts.program.data.own import divided, pictures
from train.data.own import tables
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
    return found_by(table, validation=validation, test=test).listing


def found_by(table, *, validation=0.2, test=0.2):
    return tables.find(table).divided(divided.fields(validation, test))


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


LISTED = "".join(f"{path},{label}\n" for path, label in rows(5))
TEXTS = {
    "semicolons": ("path;label\n" + LISTED.replace(",", ";"), "a.csv"),
    "commas in a tsv": (f"path,label\n{LISTED}", "a.tsv"),
    "what Excel is told": ("sep=;\npath;label\n" + LISTED.replace(",", ";"), "a.csv"),
    "empty columns": ("path,label,,\n" + LISTED.replace("\n", ",,\n"), "a.csv"),
    "columns without names": (
        ",,path,label\n" + "".join(f"7,8,{row}\n" for row in LISTED.split()),
        "a.csv",
    ),
    "blank rows": (f"\n \npath,label\n\n{LISTED},\n , \n\n", "a.csv"),
    "line ends of old Macs": (f"path,label\n{LISTED}".replace("\n", "\r"), "a.csv"),
    "spaces": ("path , label\n" + LISTED.replace(",", ' , "').replace("\n", '"\n'), "a.csv"),
    "two marks of byte order": (f"\ufeff\ufeffpath,label\n{LISTED}", "a.csv"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_table_is_read_as_it_is_meant(tmp_path, case):
    expected = find(write(tmp_path, rows(5)))
    text, name = TEXTS[case]
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    found = find(tmp_path / name)
    assert found.class_names == CLASSES
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert [path.removeprefix("./") for path in found.paths] == list(expected.paths)


def test_line_breaks_in_quotes_are_kept(tmp_path):
    table = tmp_path / "a.csv"
    pictures.write(tmp_path, [f"{number}.png" for number in range(10)])
    listed = "".join(f'{number}.png,"a\nb{number % 2}"\r\n' for number in range(10))
    table.write_text(f"path,label\r\n{listed}", encoding="utf-8", newline="")
    assert find(table).class_names == ("a\nb0", "a\nb1")


def test_a_path_finds_a_file_whose_name_looks_the_same(tmp_path):
    nfc, nfd = "h\u00eatre", "he\u0302tre"
    pictures.write(tmp_path, [f"{nfd}/{number}.png" for number in range(10)])
    table = tmp_path / "a.csv"
    listed = "".join(f"{nfc}\\{n}.png,{(nfc, nfd, 'x')[n % 3]}\n" for n in range(5))
    listed += "".join(f"{nfc}/{n}.png\u200b,{(nfc, nfd, 'x')[n % 3]}\n" for n in range(5, 10))
    table.write_text(f"path,label\n{listed}", encoding="utf-8")
    found = find(table)
    assert found.paths == tuple(f"{nfd}/{number}.png" for number in range(10))
    assert found.class_names == (nfc, "x")


def test_a_path_finds_a_file_whose_name_is_not_utf_8(tmp_path, caplog):
    named = "sk\udce4rm.png"
    table = write(tmp_path, rows(5))
    (tmp_path / rows(5)[0][0]).rename(tmp_path / named)
    table.write_text(table.read_text().replace(rows(5)[0][0], r"sk\udce4rm.png"))
    assert find(table).paths[0] == named
    assert caplog.messages == []


def test_rows_that_are_marked_without_a_label_are_left_out(tmp_path):
    listed = [(*row, "", "") for row in rows(5)]
    listed[3:6] = [(listed[i][0], "", "cannot tell", "") for i in (3, 4)] + [
        (listed[5][0], "", "none of these", "")
    ]
    table = write(tmp_path, listed, ("path", "label", "mark", "group"))
    assert find(table).paths == tuple(row[0] for row in listed if row[1])
    listed[2] = (listed[2][0], "", "perhaps", "")
    with pytest.raises(UserError, match="line 4: the column label is empty"):
        find(write(tmp_path, listed, ("path", "label", "mark", "group")))


def test_an_apostrophe_before_a_formula_is_dropped(tmp_path):
    labels = {
        "'=SUM(A1)": "=SUM(A1)",
        "''-x": "'-x",
        "'+": "+",
        "'@": "@",
        "'s": "'s",
        "a'=": "a'=",
    }
    listed = [(f"{index}{name[-1:]}.png", name) for index in range(5) for name in labels]
    assert set(find(write(tmp_path, listed)).class_names) == set(labels.values())


def test_missing_files_are_told_with_their_rows_and_can_be_left_out(tmp_path, caplog):
    table = write(tmp_path, rows(5))
    table.write_text("path,label\n" + LISTED.replace("ash-", ".\\ash-"))
    for name in ("ash-1.png", "cedar-4.png"):
        (tmp_path / name).unlink()
    files = found_by(table).images
    assert ".\\ash-1.png (line 3), cedar-4.png (line 16)" in caplog.messages[0]
    # As others that cannot be read.
    gone = [files[n]["file_name"] for n in range(15) if "unreadable" in files[n]]
    assert gone == ["./ash-1.png", "cedar-4.png"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # The test is the given one, and validation images are held out of the rest.
        (["test"] * 4 + [""] * 16, [6, 2, 2]),
        # Nothing is missing.
        (["test"] * 4 + ["val"] * 4 + [" "] * 12, [6, 2, 2]),
        # What is given for training stays there.
        (["train"] * 10 + [""] * 10, [8, 1, 1]),
        # As without the column.
        ([""] * 20, [6, 2, 2]),
    ],
)
def test_a_split_may_be_filled_in_part(tmp_path, words, expected):
    listed = [(f"{n}.png", "ab"[n % 2], word) for n, word in enumerate(words)]
    found = find(write(tmp_path, listed, ("path", "label", "split")))
    assert counts(found) == [[each] * 2 for each in expected]
    for word, role in zip(words, found.roles, strict=True):
        assert word.strip() in ("", ["train", "val", "test"][role])
