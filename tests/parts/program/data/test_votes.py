"""Votes and several labels in a table: their forms, what they become, and what is refused."""

import numpy as np
import pytest

from topk_jax import metrics
from train.data import votes
from train.data.sources import table
from train.data.truths import SEVERAL, VOTES
from train.foundation.errors import UserError

# One image with three votes for oak and one for ash, and one with two votes.
EXPECTED = {"a.png": {"oak": 0.75, "ash": 0.25}, "b.png": {"ash": 0.5, "elm": 0.5}}
FORMS = {
    "rows of people": "a,oak,x a,oak,y b,ash,x a,oak,z a,ash,w b,elm,y",
    "rows of nobody": "a,oak, a,oak, b,ash, a,oak, a,ash, b,elm,",
    "rows of some": "a,oak,x a,oak, a,oak, b,elm,x a,ash,y b,ash,",
    "a person with two labels": "a,oak,x a,oak,y a,oak,z a,ash,w b,ash;elm,x",
    "labels in a cell": "a,oak;oak;ash;oak, b,elm;ash,",
}
RULES = ("shares", "majority", "weighted", "dawid_skene")
NUMBERED = "path,label,votes\na.png,oak,3\na.png,ash,1\nb.png,ash,0.5\nb.png,elm,0.5\n"


def write(root, rows):
    """Writes a table, a text or rows with spaces between them, and its images."""
    for name in EXPECTED:
        (root / name).write_bytes(b"")
    if "\n" not in rows:
        cells = [row.replace(",", ".png,", 1) for row in rows.split()]
        rows = "\n".join(["path,label,annotator", *cells, ""])
    (root / "photos.csv").write_text(rows)
    return root / "photos.csv"


def find(path, kind=VOTES, rule="shares"):
    return table.find(path, columns={}, kind=kind, rule=rule)


def shares_of(found):
    truths = zip(found.truths.classes.tolist(), found.truths.shares.tolist(), strict=True)
    shares = [
        {found.class_names[label]: share for label, share in zip(*row, strict=True) if share}
        for row in truths
    ]
    return dict(zip(found.names, shares, strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_votes(tmp_path, form):
    found = find(write(tmp_path, FORMS[form]))
    assert shares_of(found) == EXPECTED
    assert [found.class_names[label] for label in found.labels] == ["oak", "ash"]


def test_numbers_of_votes(tmp_path):
    assert shares_of(find(write(tmp_path, NUMBERED))) == EXPECTED


def test_columns_without_a_meaning_are_named(tmp_path, caplog):
    find(write(tmp_path, NUMBERED.replace("votes", "shares")))
    assert caplog.messages[0].endswith("photos.csv: columns without a meaning: shares")


def test_votes_become_shares_by_a_rule(tmp_path):
    path = write(tmp_path, "a,oak,x a,oak,y a,ash,z b,elm,x b,elm,y b,ash,z")
    oak = {rule: shares_of(find(path, rule=rule))["a.png"]["oak"] for rule in RULES}
    # Two people have named two classes, and one has named one twice.
    two, one = metrics.voter_weights(np.array([2, 1]))
    assert oak["weighted"] == pytest.approx(2 * two / (2 * two + one))
    assert oak["shares"] == pytest.approx(2 / 3)
    assert oak["majority"] == 1
    # The two who agree elsewhere count more.
    assert oak["dawid_skene"] > 0.99


def test_equal_votes_are_all_the_majority(tmp_path):
    found = shares_of(
        find(write(tmp_path, "a,oak, a,oak, a,ash;ash, a,elm, b,elm,"), rule="majority")
    )
    assert found["a.png"] == {"oak": 0.5, "ash": 0.5}


def test_several_labels(tmp_path):
    found = find(write(tmp_path, "a,oak;ash,x a,oak;elm,x b,ash,"), SEVERAL)
    shares = shares_of(found)
    assert shares["a.png"] == pytest.approx(dict.fromkeys(("oak", "ash", "elm"), 1 / 3))
    assert shares["b.png"] == {"ash": 1}
    # The rarest label stands for an example.
    assert found.class_names[found.labels[0]] in ("elm", "oak")
    assert np.ptp(found.truths.shares[0]) == 0


# The rows, the rule, and what the line names.
REFUSED = {
    "two votes of a person": ("a,oak,x b,oak,x a,ash,x", "shares", "'x' has two votes on a.png"),
    "numbers in cells": ("a,oak:3;ash:1,", "shares", "label must be classes, .* got 'ash:1'"),
    "no label": ("a,oak,x b,;,x", "shares", "b.png has a row without a label"),
    "no number": (
        NUMBERED.replace("3", "many"),
        "shares",
        "votes must be numbers greater than 0; got 'many'",
    ),
    "no votes": (
        NUMBERED.replace("3", "-1"),
        "shares",
        "votes must be numbers greater than 0; got '-1'",
    ),
    "no person, weighted": ("a,oak,x b,oak,", "weighted", "shares or majority if .*'weighted'"),
    "no people": (NUMBERED, "dawid_skene", "shares or majority if .*'dawid_skene'"),
    "two classes of a person": ("a,oak;ash,x", "dawid_skene", "if a vote has several classes"),
    "two groups": (
        "path,label,group\na.png,oak,1\na.png,oak,2\n",
        "shares",
        "a.png .* their group",
    ),
    "two splits": (
        "path,label,split\na.png,oak,test\na.png,oak,train\n",
        "shares",
        "a.png that differ in their split",
    ),
}


def test_confusions_that_do_not_fit_into_memory_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(votes, "_MOST_CONFUSIONS", 17)
    path = write(tmp_path, "a,oak,x a,ash,y b,elm,x b,oak,y")
    with pytest.raises(UserError, match=r"votes must be .* for 2 people and 3 classes"):
        find(path, rule="dawid_skene")


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path, case):
    rows, rule, message = REFUSED[case]
    with pytest.raises(UserError, match=rf"^config\.dataset\.(path .*|votes must be .*){message}"):
        find(write(tmp_path, rows), rule=rule)
