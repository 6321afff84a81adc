"""Corrected labels: how the table calls examples, what it changes, and what is refused."""

import csv

import numpy as np
import pytest

from train.data import corrections
from train.data.examples import Examples, Split
from train.data.truths import VOTES, Truths
from train.foundation.errors import UserError

CLASSES = ("ash", "birch", "cedar")
NAMES = tuple(f"{name}/{index}.png" for name in CLASSES for index in range(4))
LABELS = np.repeat(np.arange(3, dtype=np.int32), 4)
USUAL = ("name", "correction")


def examples(names=NAMES, **changed):
    return Examples(
        inputs=np.zeros((12, 1)),
        places=np.arange(12),
        labels=LABELS,
        splits=np.full(12, Split.NONE, np.int8),
        class_names=CLASSES,
        where="config.dataset.path photos",
        names=None if names is None else np.array(names, object),
        **changed,
    )


def apply(folder, *rows, given=None, header=USUAL):
    with (folder / "corrected.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return corrections.apply(given or examples(), str(folder / "corrected.csv"))


def test_a_label_is_corrected_and_an_example_left_out(tmp_path, caplog):
    # Names identify examples, so labels of another time are not compared.
    rows = [("ash/1.png", "elm", "cedar"), ("birch/0.png", "", "-"), ("cedar/0.png", "cedar", "")]
    found = apply(tmp_path, *rows, header=("name", "label", "correction"))
    assert found.labels.tolist() == [0, 2, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert "birch/0.png" not in found.names
    assert found.digest() != examples().digest()
    (message,) = caplog.messages
    assert message.endswith("corrected.csv: changed labels: 1; examples left out: 1")


# The name of the second example, the header of the table, and what calls it there.
CALLED = {
    "a path": ("ash/1.png", ("path", "correction"), "ash/1.png"),
    "an absolute path": ("ash/1.png", ("path", "label"), "/home/me/photos/ash/1.png"),
    "an absolute name": ("/a/1.png", ("path", "label"), "/a/1.png"),
    "any characters": ('a,"b"\n.png', USUAL, 'a,"b"\n.png'),
    "a formula": ("=1.png", USUAL, "'=1.png"),
    "not UTF-8": ("\udcff.png", USUAL, r"\udcff.png"),
    "another form": ("e\u0302.png", USUAL, "\u00ea.png"),
    "the name of a row": (None, USUAL, "row 1"),
    "the number of a row": (None, ("row", "correction"), "1"),
}


@pytest.mark.parametrize("case", CALLED)
def test_a_table_calls_an_example_by(tmp_path, case):
    name, header, called = CALLED[case]
    given = examples(None if name is None else ("", name, *NAMES[2:]))
    found = apply(tmp_path, (called, "cedar"), header=header, given=given)
    assert found.labels.tolist() == [0, 2, *LABELS[2:]]


def test_a_corrected_example_has_one_class_in_place_of_its_votes(tmp_path):
    rows, labels, votes = [*range(12), 0], [*LABELS, 1], [2] * 12 + [1]
    truths = Truths.of_entries(np.array(rows), np.array(labels), np.array(votes), VOTES)
    corrected = [("ash/0.png", "cedar"), ("ash/1.png", "-")]
    found = apply(tmp_path, *corrected, given=examples(truths=truths))
    assert len(found.truths) == 11
    assert found.truths.labels.tolist() == found.labels.tolist()
    assert found.truths.shares[0].tolist() == [1, 0]
    assert found.truths.classes[0].tolist() == [2, 2]


LABELLED = ("name", "label", "correction")
# The header and the rows of the table, and what the line tells.
REFUSED = {
    "classes": (USUAL, [("ash/1.png", "ceder")], "got 'ceder'; did you mean 'cedar'"),
    "no example": (USUAL, [("ash/0.png", ""), ("elm/1.png", "-")], "has no elm/1.png .row 3"),
    "two corrections": (USUAL, [("ash/1.png", "cedar"), ("ash/1.png", "-")], "different .* .row 3"),
    "two of a name": (USUAL, [("twice.png", "cedar")], "several examples .* twice.png .row 2"),
    "no columns": (("a", "b"), [], "columns name, path or row.* it has a, b"),
    "other data": (LABELLED, [("row 1", "birch", "ash")], "row 2. must be 'ash'.*got 'birch'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path, case):
    header, rows, message = REFUSED[case]
    # The table has labels because rows without names may be those of other data.
    given = examples(None if header is LABELLED else (*NAMES[:10], "twice.png", "twice.png"))
    with pytest.raises(UserError, match=f"^config.dataset.corrections .*{message}"):
        apply(tmp_path, *rows, given=given, header=header)
