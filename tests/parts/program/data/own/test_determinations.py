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
    "other columns": (
        ("image", "worker", "answer"),
        *(("a.png", one, "oak") for one in "xyz"),
        ("a.png", "w", "ash"),
        ("b.png", "x", "ash; elm"),
    ),
}
FIELDS = {
    "other columns": {"image": "image", "annotator": "worker", "label": "answer"},
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
    "a.png,x,oak\na.png,x,ash\n": "line 3: 'x' has two votes",
    "a.png,x,oak\na.png,y,\n": "line 3: .* the column label",
    "a.png,,oak: 0.7; ash: 0.1\n": r"line 2: .* 0\.7, 0\.1",
    "a.png,,oak: 2; ash: -1\n": "line 2: .* got 2, -1",
    "a.png,,oak: 2; ash\n": "line 2: .* 'oak: 2; a",
}


@pytest.mark.parametrize("rows", REFUSED)
def test_bad_votes_are_refused(tmp_path, rows):
    table = write(tmp_path, [])
    table.write_text(f"path,annotator,label\n{rows}")
    with pytest.raises(UserError, match=REFUSED[rows]):
        find(table)


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
    "labels must be less than 3": {"labels": np.array([[0, 3]] * ROWS)},
    "row 0, counted from 0, has no label": {"labels": np.array([[-1, -1]] * ROWS)},
    "row 0, counted from 0: shares must add up to 1": {
        "labels": np.array([[0, 1]] * ROWS),
        "shares": np.array([[0.5, 0.3]] * ROWS),
    },
    "row 0, counted from 0: 'x' has two votes": {
        "labels": np.array([[0, 1]] * ROWS),
        "annotators": np.array([["x", "x"]] * ROWS),
    },
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
