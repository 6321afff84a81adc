"""Tables of images: how they are written, what their columns mean, and what is refused."""

import csv
import io
import os

import pyarrow
import pytest
from pyarrow import parquet

from train.data.examples import Split
from train.data.sources import table
from train.foundation.errors import UserError

ROWS = [("a.png", "oak"), ("b.png", "ash"), ("c/c.png", "oak")]
LISTED = "a.png,oak\nb.png,ash\nc/c.png,oak\n"


def write(root, content, *, name="photos.csv"):
    """Writes a table, a text or the rows of one, and its files."""
    (root / "c").mkdir(exist_ok=True)
    for size, file in enumerate(("a.png", "b.png", "c/c.png")):
        (root / file).write_bytes(bytes(size))
    if not isinstance(content, str | bytes):
        text = io.StringIO(newline="")
        csv.writer(text).writerows(content)
        content = text.getvalue()
    (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return root / name


def find(path, *, kind="one", **asked):
    return table.find(path, **{"columns": {}, "kind": kind, "rule": "shares"} | asked)


def pairs(found):
    labels = [found.class_names[label] for label in found.labels]
    return [*zip(found.names, labels, strict=True)]


FORMS = {
    "commas": (f"path,label\n{LISTED}", "a.csv"),
    "tabs": (f"path,label\n{LISTED}".replace(",", "\t"), "a.tsv"),
    "semicolons": (f"path,label\n{LISTED}".replace(",", ";"), "A.CSV"),
    "a mark of byte order": (f'\ufeff"path","label"\n{LISTED}', "a.csv"),
    "ends of lines of Windows": (f"path,label\n{LISTED}".replace("\n", "\r\n"), "a.csv"),
    "spaces, quotes and blank rows": (
        '\n path , label\na.png , oak \n , \nb.png, "ash"\n\nc/c.png,oak\n\n',
        "a.csv",
    ),
    "other columns": (
        "seen,label,,path,License\n" + "".join(f"1,{b},,{a},x\n" for a, b in ROWS),
        "a.csv",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_alike(tmp_path, form):
    content, name = FORMS[form]
    found = find(write(tmp_path, content, name=name))
    assert pairs(found) == ROWS
    assert found.class_names == ("ash", "oak")
    assert found.encoded(1) == (tmp_path / "b.png").read_bytes()
    assert set(found.splits) == {Split.NONE}
    assert found.groups is found.truths is found.credits is None


def test_parquet_is_read_as_its_texts(tmp_path):
    write(tmp_path, "")
    columns = {"path": [a for a, _ in ROWS], "label": [7, 8, 7], "group": ["x", None, " x "]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    found = find(tmp_path / "a.parquet")
    assert pairs(found) == [("a.png", "7"), ("b.png", "8"), ("c/c.png", "7")]
    assert found.groups.tolist() == ["x", "", "x"]


def test_columns_that_an_image_may_have(tmp_path):
    header = ("path", "label", "split", "group", "author", "license")
    cells = [("TRAIN", "plant 1", "Me", "cc-by"), ("val", "", "", ""), ("", "plant 1", "", "cc0")]
    rows = [(*row, *cell) for row, cell in zip(ROWS, cells, strict=True)]
    found = find(write(tmp_path, [header, *rows]))
    assert found.splits.tolist() == [Split.TRAIN, Split.VALIDATION, Split.NONE]
    assert found.groups.tolist() == ["plant 1", "", "plant 1"]
    assert [found.credit(index) for index in range(3)] == ["Me, cc-by", "", "cc0"]


def test_columns_may_have_other_names(tmp_path):
    path = write(tmp_path, [("file", "species", "plant"), *((*row, "x") for row in ROWS)])
    columns = {"path": "file", "label": "species", "group": "plant"}
    assert pairs(found := find(path, columns=columns)) == ROWS
    assert found.groups.tolist() == ["x"] * 3
    for name, field in (("path", "image"), ("label", "label"), ("group", "group")):
        message = f"^config.dataset.{field} must be a column of .*file, species, plant; got 'gone'"
        with pytest.raises(UserError, match=message):
            find(path, columns=columns | {name: "gone"})


def test_rows_that_a_person_has_marked_without_a_class_are_left_out(tmp_path, caplog):
    rows = [("a.png", "oak", ""), ("b.png", "", "cannot tell"), ("c/c.png", "", "none of these")]
    path = write(tmp_path, [("path", "label", "mark"), *rows])
    assert pairs(find(path)) == ROWS[:1]
    (message,) = caplog.messages
    assert message.endswith(": 2 rows marked 'none of these' or 'cannot tell' are left out")


def test_images_without_classes(tmp_path):
    path = write(tmp_path, [("path",), ["a.png"], ["b.png"], ["a.png"]])
    found = find(path, labelled=False)
    assert found.names.tolist() == ["a.png", "b.png"]
    assert found.labels.tolist() == [-1, -1]


def test_texts_that_a_spreadsheet_would_compute_come_back(tmp_path):
    texts = ["=1+1", "'=1", "@home", "+", "-x", "-1.5", "oak's", "'s", "-"]
    path = write(tmp_path, [["label"], *([table.escaped(text)] for text in texts)])
    assert table.read(path)["label"].tolist() == texts
    assert {line for line in path.read_text().split() if line[0] in "=+-@"} == {"-1.5", "-"}


def test_the_digest_changes_with_the_files(tmp_path):
    path = write(tmp_path, f"path,label\n{LISTED}")
    before = find(path).digest()
    assert find(path, kind="several").digest() != before
    (tmp_path / "a.png").write_bytes(bytes(99))
    assert find(path).digest() != before
    (tmp_path / "a.png").unlink()
    assert len(find(path)) == 3


# The content, and what the line names after the table.
REFUSED = {
    "an empty file": ("", "must have a column label.*it has none"),
    "no rows": ("path,label\n", "no rows"),
    "not UTF-8": (b"path,label\na.png,\xe9rable\n", "'utf-8' codec"),
    "an open quote": ('path,label\n"a', "unexpected end of data"),
    "a short row": ("path,label\na.png\n", "row 2 must have 2 columns as the first; it has 1"),
    "two columns of one name": ("path,label,path\n", "two columns of one name"),
    "no labels": ("path,species\n", "must have a column label, so spelled; it has path, species"),
    "a capital letter": ("path,label,Group\n", "must have a column group, so spelled"),
    "an empty label": ("path,label\na.png,oak\nb.png, \n", "row 3: it must have a path, and a"),
    "an empty path": ("path,label\n,oak\n", "row 2: it must have a path"),
    "a label and a mark": ("path,label,mark\na.png,oak,cannot tell\n", "row 2: .*'cannot tell'"),
    "a path twice": ("path,label\na.png,oak\nb.png,oak\n./a.png,ash\n", "rows with the path a.png"),
    "an unknown split": ("path,label,split\na.png,oak,extra\n", "split must be .*; got 'extra'"),
    "no files": ("path,label\nx.png,oak\ny.png,ash\n", "none of the files exists, as .*/x.png"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path, case):
    content, message = REFUSED[case]
    path = write(tmp_path, content)
    with pytest.raises(UserError, match=f"config.dataset.path {path}.*{message}"):
        find(path)


def test_what_is_no_table_is_refused(tmp_path):
    write(tmp_path, b"PAR1", name="a.parquet")
    os.mkfifo(tmp_path / "pipe.csv")
    told = {"a.parquet": "cannot read", "a.xlsx": "must be a .csv", "gone.csv": "does not exist"}
    for name, message in (told | {"pipe.csv": "is a pipe"}).items():
        with pytest.raises(UserError, match=message):
            find(tmp_path / name)
