"""Votes and several labels in the files of users: their forms, aggregation, and what is refused."""

import csv
import json

import numpy as np
import pytest

from tests.parts.program.data.own import divided, matrices, pictures
from train.configuration.datasets import TableFields
from train.data.own import division, feature_files, features, tables
from train.data.own.determinations import Reading
from train.data.own.listing import NO_SPLIT, ListedFiles, Listing, Role
from train.data.truths import SEVERAL, VOTES, Truths
from train.foundation import files
from train.foundation.errors import UserError

# One image with three votes for oak and one for ash, and one with two votes.
EXPECTED = {"a.png": {"oak": 0.75, "ash": 0.25}, "b.png": {"ash": 0.5, "elm": 0.5}}
FORMS = {
    "rows": (
        ("path", "annotator", "label"),
        *(("a.png", one, "oak") for one in "xyz"),
        ("a.png", "w", "ash"),
        ("b.png", "x", "ash"),
        ("b.png", "y", "elm"),
    ),
    "rows without names": (
        ("path", "label"),
        *[("a.png", "oak")] * 3,
        *[("a.png", "ash"), ("b.png", "ash"), ("b.png", "elm")],
    ),
    "numbers of votes": (
        ("path", "label"),
        ("a.png", "oak: 3; ash: 1; elm: 0"),
        ("b.png", "ash|elm"),
    ),
    "shares": (("path", "label"), ("a.png", "oak: 0.75; ash: 0.25"), ("b.png", "ash:0.5;elm:.5")),
    "a column of shares": (
        ("path", "label", "shares"),
        ("a.png", "oak; ash", "0.75; 0.25"),
        ("b.png", "elm; ash", "1; 1"),
    ),
    "other columns": (
        ("image", "worker", "answer"),
        *(("a.png", one, "oak") for one in "xyz"),
        ("a.png", "w", "ash"),
        ("b.png", "x", "ash; elm"),
    ),
    "a column for each expert": (
        ("path", "first", "second", "third", "fourth"),
        ("a.png", "oak", "oak", "oak", "ash"),
        ("b.png", "", "ash", "elm", ""),
    ),
}
FIELDS = {
    "other columns": {"image": "image", "annotator": "worker", "label": "answer"},
    "a column for each expert": {"label": "first,second, third,fourth"},
}


def write(root, rows):
    pictures.write(root, ["a.png", "b.png"])
    with (root / "photos.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return root / "photos.csv"


def find(table, labels=VOTES, **fields):
    given = TableFields(name="table", batch_size=1, path=str(table), labels=labels, **fields)
    return tables.find(table, reading=Reading.of(given, None)).listing


def shares_of(truths, class_names):
    return [
        {class_names[label]: share for label, share in zip(*row, strict=True) if share}
        for row in zip(truths.classes.tolist(), truths.shares.tolist(), strict=True)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_votes(tmp_path, form):
    found = find(write(tmp_path, FORMS[form]), **FIELDS.get(form, {}))
    assert found.paths == ("a.png", "b.png")
    assert shares_of(found.truths, found.class_names) == [*EXPECTED.values()]
    assert [found.class_names[label] for label in found.labels] == ["oak", "ash"]


def test_one_column_may_have_two_names(tmp_path):
    table = write(tmp_path, [("file", "label"), ("a.png", "oak"), ("b.png", "ash")])
    found = find(table, image="file", annotator="file")
    assert found.paths == ("a.png", "b.png")


def test_the_confusions_of_people_are_estimated(tmp_path):
    """Two people agree; the third, who always names the oak, is no reason to doubt them."""
    answers = {"a.png": ("ash", "ash", "oak"), "b.png": ("oak", "oak", "oak")}
    rows = [("path", "annotator", "label")]
    rows += [
        (path, one, label)
        for path, labels in answers.items()
        for one, label in zip("xyz", labels, strict=True)
    ]
    found = find(write(tmp_path, rows), votes="dawid_skene")
    assert shares_of(found.truths, found.class_names) == [{"ash": 1}, {"oak": 1}]


@pytest.mark.parametrize("votes", ["weighted", "dawid_skene"])
def test_who_voted_has_to_be_known(tmp_path, votes):
    table = write(tmp_path, FORMS["rows without names"])
    with pytest.raises(UserError, match=r"votes must be shares or majority if .*; got '" + votes):
        find(table, votes=votes)


def test_a_person_has_one_class_for_the_estimate_of_confusions(tmp_path):
    table = write(tmp_path, FORMS["other columns"])
    with pytest.raises(UserError, match=r"votes must be .* names several classes of one example"):
        find(table, votes="dawid_skene", **FIELDS["other columns"])


def test_several_labels(tmp_path):
    rows = [("path", "label"), ("a.png", "oak; ash"), ("a.png", "oak|elm"), ("b.png", "ash: 3")]
    found = find(write(tmp_path, rows), SEVERAL)
    thirds = {"oak", "ash", "elm"}
    first, second = shares_of(found.truths, found.class_names)
    assert set(first) == thirds
    # A third in 32 bits.
    assert np.ptp([*first.values()]) == 0
    assert sum(first.values()) == pytest.approx(1, abs=1e-6)
    assert second == {"ash: 3": 1}


REFUSED = {
    "a.png,x,oak\na.png,x,ash\n": r"line 3: 'x' has two votes on one example$",
    "a.png,x,oak\na.png,y,\n": r"line 3: an example must have a label; the column label is empty$",
    "a.png,,oak: 0.7; ash: 0.1\n": r"add up to 1, .* got 0\.7, 0\.1, which add up to 0\.8$",
    "a.png,,oak: 2; ash: -1\n": r"line 2: votes and shares must be at least 0; got 2, -1$",
    "a.png,,oak: 0; ash: 0\n": r"line 2: an example must have a vote; all its numbers are 0$",
    "a.png,,oak: 2; ash\n": r"all labels of an example must have a number, or none; got 'oak: 2; a",
    "a.png,,;\n": r"line 2: a label must be a text; got ';'$",
    "a.png,\u0301,oak\n": r"line 2: the name of an annotator .* .* character; got '<U\+0301>'$",
    "a.png,x,oak; \u200b\n": r"the name of a class must have .* character; got '<U\+200B>'$",
}


@pytest.mark.parametrize("rows", REFUSED)
def test_bad_votes_are_refused(tmp_path, rows):
    table = write(tmp_path, [])
    table.write_text(f"path,annotator,label\n{rows}")
    with pytest.raises(UserError, match=REFUSED[rows]):
        find(table)


def test_an_example_without_votes_is_told_by_the_names_of_its_columns(tmp_path):
    rows = [("path", "first", "second"), ("a.png", "oak", ""), ("b.png", "", "")]
    with pytest.raises(
        UserError, match=r"line 3: .* label; the columns first and second are empty$"
    ):
        find(write(tmp_path, rows), label="first,second")
    with pytest.raises(UserError, match=r"line 3: .* label; the column first is empty$"):
        find(tmp_path / "photos.csv", label="first")


def test_rows_of_one_image_agree(tmp_path):
    rows = [("path", "label", "split"), ("a.png", "oak", "train"), ("a.png", "ash", "test")]
    with pytest.raises(
        UserError, match=r"line 2 and line 3 have the same path, a\.png, and another sp"
    ):
        find(write(tmp_path, rows))


@pytest.mark.parametrize("groups", [None, "pairs"])
def test_each_class_with_a_vote_is_trained_on(groups):
    # The third class stands for none of its examples. Splits are held out by the other two.
    rows = np.arange(40)
    pairs = tuple(f"group {row // 4}" for row in rows.tolist())
    for one in rows.tolist():
        truths = Truths.of_entries(
            np.append(rows, one), np.append(rows % 2, 2), np.append(np.full(40, 2), 1), VOTES
        )
        given = Listing(
            labels=truths.labels,
            roles=np.full(40, NO_SPLIT, np.int8),
            class_names=("ash", "elm", "oak"),
            groups=groups and pairs,
            truths=truths,
        )
        found = division.divide(given, divided.fields(), where="data", example="row")
        assert truths[found.of_role(Role.TRAIN)].occurrences(3).min() == 1
        if groups:
            assert all(np.ptp(found.roles[start : start + 4]) == 0 for start in range(0, 40, 4))


def test_what_a_run_keeps_of_its_files(tmp_path):
    found = find(write(tmp_path, FORMS["rows"]))
    kept = json.loads(files.to_json(ListedFiles("digest", (1, 1, 1), found).to_plain()))
    again = ListedFiles.from_plain(kept).listing
    assert again.digest() == found.digest()
    other = find(write(tmp_path, FORMS["rows"][:-1]))
    assert other.digest() != found.digest()


ROWS = 4
FEATURES = {
    "numbers": {"labels": np.array([[2, 0], [1, -1], [0, -1], [2, 1]])},
    "texts": {"labels": np.array([["oak", "ash"], ["elm", ""], ["ash", ""], ["oak", "elm"]])},
    "a column for each class": {
        "shares": np.array([[1, 0, 3], [0, 1, 0], [1, 0, 0], [0, 0.5, 0.5]])
    },
    "shares": {
        "labels": np.array([[2, 0], [1, -1], [0, -1], [2, 1]]),
        "shares": np.array([[3, 1], [1, 0], [2, 0], [0.5, 0.5]]),
        "annotators": np.array([["x", "x"], ["x", ""], ["x", ""], ["y", "x"]]),
    },
}


@pytest.mark.parametrize("form", FEATURES)
def test_every_form_of_features(tmp_path, form):
    arrays = FEATURES[form] | {"class_names": np.array(["ash", "elm", "oak"])}
    if form == "shares":
        arrays["annotators"][0, 1] = "y"
    found = read(tmp_path, arrays)
    first = 0.75 if "shares" in arrays and form != "shares" else 0.5
    expected = [{"oak": first, "ash": 1 - first}, {"elm": 1}, {"ash": 1}, {"oak": 0.5, "elm": 0.5}]
    assert [{name: one[name] for name in sorted(one)} for one in found] == [
        {name: one[name] for name in sorted(one)} for one in expected
    ]


BAD_FEATURES = {
    r"a\.npz: labels must be less than 3, .* got 3$": {"labels": np.array([[0, 3]] * ROWS)},
    r"a\.npz: labels must be among class_names; got 'fir'$": {"labels": np.array([["fir"]] * ROWS)},
    r"a\.npz: row 0, counted from 0, has no label$": {"labels": np.array([[-1, -1]] * ROWS)},
    r"row 0, counted from 0: shares must add up to 1, .* up to 0\.8$": {
        "labels": np.array([[0, 1]] * ROWS),
        "shares": np.array([[0.5, 0.3]] * ROWS),
    },
    r"shares must have the shape of labels; got \[4, 1\]$": {
        "labels": np.array([[0, 1]] * ROWS),
        "shares": np.ones((ROWS, 1)),
    },
    r"row 0, counted from 0: 'x' has two votes on one example$": {
        "labels": np.array([[0, 1]] * ROWS),
        "annotators": np.array([["x", "x"]] * ROWS),
    },
    r"must have an array labels, or shares with a column for each": {"shares": np.ones((ROWS, 2))},
}


@pytest.mark.parametrize("message", BAD_FEATURES)
def test_bad_features_are_refused(tmp_path, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, BAD_FEATURES[message] | {"class_names": np.array(["ash", "elm", "oak"])})


def read(tmp_path, arrays):
    path = matrices.write(tmp_path / "a.npz", features=np.zeros((ROWS, 1)), **arrays)
    found = feature_files.find(path, "config.dataset.path")
    _, names, truths = features.read_truths(found, ROWS, Reading(VOTES))
    return shares_of(truths, names)
