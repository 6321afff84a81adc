"""Votes and several labels in a table, as counted by hand: their forms, and what is refused."""

import pytest

from train.data import votes
from train.data.sources import table
from train.data.truths import SEVERAL, VOTES
from train.foundation.errors import UserError

# One image with three votes for oak and one for ash, and one with two votes.
COUNTED = {"a.png": {"oak": 0.75, "ash": 0.25}, "b.png": {"ash": 0.5, "elm": 0.5}}
NUMBERED = "path,label,votes\na.png,oak,3\na.png,ash,1\nb.png,ash,0.5\nb.png,elm,0.5\n"
# Two people have named two classes, and one has named one twice.
PEOPLE = "a,oak,x a,oak,y a,ash,z b,elm,x b,elm,y b,ash,z"
TWO, ONE = 2**0.5 - 2**0.2 + 1, 1
MORE, LESS = 2 * TWO / (2 * TWO + ONE), ONE / (2 * TWO + ONE)
WEIGHTED = {"a.png": {"oak": MORE, "ash": LESS}, "b.png": {"elm": MORE, "ash": LESS}}
EQUAL = {"a.png": {"oak": 0.5, "ash": 0.5}, "b.png": {"elm": 1}}
THIRDS = dict.fromkeys(("oak", "ash", "elm"), 1 / 3)
# The rows, what they become by which rule, and the shares of the classes of each image.
CASES = {
    "rows of people": ("a,oak,x a,oak,y b,ash,x a,oak,z a,ash,w b,elm,y", "shares", COUNTED),
    "rows of nobody": ("a,oak, a,oak, b,ash, a,oak, a,ash, b,elm,", "shares", COUNTED),
    "rows of some": ("a,oak,x a,oak, a,oak, b,elm,x a,ash,y b,ash,", "shares", COUNTED),
    "two labels": ("a,oak,x a,oak,y a,oak,z a,ash,w b,ash;elm,x", "shares", COUNTED),
    "labels in a cell": ("a,oak;oak;ash;oak, b,elm;ash,", "shares", COUNTED),
    "numbers": (NUMBERED, "shares", COUNTED),
    "weighted": (PEOPLE, "weighted", WEIGHTED),
    "majority": (PEOPLE, "majority", {"a.png": {"oak": 1}, "b.png": {"elm": 1}}),
    "equal": ("a,oak, a,oak, a,ash;ash, a,elm, b,elm,", "majority", EQUAL),
    "several": ("a,oak;ash,x a,oak;elm,x b,ash,", SEVERAL, {"a.png": THIRDS, "b.png": {"ash": 1}}),
}


def find(root, rows, rule="shares"):
    """Finds the images of a table, a text or rows with spaces between them."""
    for name in COUNTED:
        (root / name).write_bytes(b"")
    if "\n" not in rows:
        cells = [row.replace(",", ".png,", 1) for row in rows.split()]
        rows = "\n".join(["path,label,annotator", *cells, ""])
    (root / "photos.csv").write_text(rows)
    kind = SEVERAL if rule == SEVERAL else VOTES
    return table.find(root / "photos.csv", columns={}, kind=kind, rule=rule)


@pytest.mark.parametrize("case", CASES)
def test_rows_become_shares(tmp_path, case):
    rows, rule, expected = CASES[case]
    found = find(tmp_path, rows, rule)
    truths = zip(found.truths.classes.tolist(), found.truths.shares.tolist(), strict=True)
    shares = [
        {found.class_names[label]: share for label, share in zip(*row, strict=True) if share}
        for row in truths
    ]
    assert [*found.names] == [*expected]
    for label, one, counted in zip(found.labels, shares, expected.values(), strict=True):
        assert one == pytest.approx(counted, rel=1e-6)
        # The class of the largest share stands for an example.
        assert one[found.class_names[label]] == max(one.values())
    # Of several labels it is the rarest.
    assert rule != SEVERAL or found.class_names[found.labels[0]] in ("elm", "oak")


def test_columns_without_a_meaning_are_named(tmp_path, caplog):
    find(tmp_path, NUMBERED.replace("votes", "shares"))
    assert caplog.messages[0].endswith("photos.csv: columns without a meaning: shares")


OF_SPLITS = "path,label,split\na.png,oak,test\na.png,oak,train\n"
# The rows, the rule, and what the line names.
REFUSED = {
    "two votes of a person": ("a,oak,x b,oak,x a,ash,x", "shares", "'x' has two votes on a.png"),
    "numbers in cells": ("a,oak:3;ash:1,", "shares", "label must be classes, .* got 'ash:1'"),
    "no label": ("a,oak,x b,;,x", "shares", "b.png has a row without a label"),
    "no number": (NUMBERED.replace("3", "many"), "shares", "numbers greater than 0; got 'many'"),
    "no votes": (NUMBERED.replace("3", "-1"), "shares", "numbers greater than 0; got '-1'"),
    "no person, weighted": ("a,oak,x b,oak,", "weighted", "shares or majority if .*'weighted'"),
    "two classes of a person": ("a,oak;ash,x", "dawid_skene", "if a vote has several classes"),
    "too many": ("a,oak,x a,ash,y b,elm,x b,oak,y", "dawid_skene", "for 2 people and 3 classes"),
    "two splits": (OF_SPLITS, "shares", "a.png that differ in their split"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path, monkeypatch, case):
    monkeypatch.setattr(votes, "_MOST_CONFUSIONS", 17)
    rows, rule, message = REFUSED[case]
    with pytest.raises(UserError, match=rf"^config\.dataset\.(path|votes) .*{message}"):
        find(tmp_path, rows, rule)
