"""Tables of images: how they are written, what their columns mean, and what is refused."""

import pyarrow
import pytest
from pyarrow import parquet

from train.data.examples import Split
from train.data.sources import table
from train.foundation.errors import UserError

ROWS = [("a.png", "oak"), ("b.png", "ash"), ("c/c.png", "oak")]
LISTED = "path,label\na.png,oak\nb.png,ash\nc/c.png,oak\n"


def write(root, content, *, name="photos.csv"):
    """Writes a table and its files."""
    (root / "c").mkdir(exist_ok=True)
    for size, file in enumerate(("a.png", "b.png", "c/c.png")):
        (root / file).write_bytes(bytes(size))
    (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return root / name


def find(path, *, kind="one", **asked):
    return table.find(path, **{"columns": {}, "kind": kind, "rule": "shares"} | asked)


def pairs(found):
    labels = [found.class_names[label] for label in found.labels]
    return [*zip(found.names, labels, strict=True)]


FORMS = {
    "commas.csv": LISTED,
    "tabs.tsv": LISTED.replace(",", "\t"),
    "semicolons.CSV": LISTED.replace(",", ";"),
    "windows.csv": "\ufeff" + LISTED.replace("path,label", '"path","label"').replace("\n", "\r\n"),
    "spaces.csv": '\n path , label\na.png , oak \n , \nb.png, "ash"\n\nc/c.png,oak\n\n',
    "others.csv": "seen,label,,path,License\n" + "".join(f"1,{b},,{a},x\n" for a, b in ROWS),
    # As a page of sets writes it of images without a class.
    "marks.csv": "mark,path,label\ncannot tell,x.png,\n,a.png,oak\n,b.png,ash\n"
    "none of these,y.png,\n,c/c.png,oak\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_alike(tmp_path, form):
    found = find(write(tmp_path, FORMS[form], name=form))
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
    header = "file,species,split,plant,author,license"
    rows = "a.png,oak,TRAIN,plant 1,Me,cc-by\nb.png,ash,val,,,\nc/c.png,oak,,plant 1,,cc0\n"
    path = write(tmp_path, f"{header}\n{rows}")
    columns = {"path": "file", "label": "species", "group": "plant"}
    found = find(path, columns=columns)
    assert pairs(found) == ROWS
    assert found.splits.tolist() == [Split.TRAIN, Split.VALIDATION, Split.NONE]
    assert found.groups.tolist() == ["plant 1", "", "plant 1"]
    assert [found.credit(index) for index in range(3)] == ["Me, cc-by", "", "cc0"]
    with pytest.raises(UserError, match=r"^config.dataset.image must be a column .*; got 'gone'"):
        find(path, columns=columns | {"path": "gone"})


def test_images_without_classes(tmp_path):
    found = find(write(tmp_path, "path\na.png\nb.png\na.png\n"), labelled=False)
    assert found.names.tolist() == ["a.png", "b.png"]
    assert found.labels.tolist() == [-1, -1]


def test_texts_that_a_spreadsheet_would_compute_come_back(tmp_path):
    texts = ["=1+1", "'=1", "@home", "+", "-x", "-1.5", "oak's", "'s", "-"]
    path = write(tmp_path, "\n".join(["label", *map(table.escaped, texts)]))
    assert table.read(path)["label"].tolist() == texts
    assert {line for line in path.read_text().split() if line[0] in "=+-@"} == {"-1.5", "-"}


def test_the_digest_changes_with_the_files(tmp_path):
    path = write(tmp_path, LISTED)
    before = find(path).digest()
    assert find(path, kind="several").digest() != before
    (tmp_path / "a.png").write_bytes(bytes(99))
    assert find(path).digest() != before


# The content, and what the line names after the table.
REFUSED = {
    "no rows": ("path,label\n", "no rows"),
    "not UTF-8": (b"path,label\na.png,\xe9rable\n", "'utf-8' codec"),
    "an open quote": ('path,label\n"a', "unexpected end of data"),
    "a short row": ("path,label\na.png\n", "row 2 must have 2 columns as the first; it has 1"),
    "two columns of one name": ("path,label,path\n", "two columns of one name"),
    "a capital letter": ("path,label,Group\n", "must have a column group, or a column that"),
    "an empty label": ("path,label\na.png,oak\nb.png, \n", "row 3: it must have a path, and a"),
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
    told = {"a.parquet": "cannot read", "a.xlsx": "must be a .csv", "gone.csv": "there is no file"}
    for name, message in told.items():
        with pytest.raises(UserError, match=message):
            find(tmp_path / name)
