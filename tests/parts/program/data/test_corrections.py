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


def apply(folder, *rows, given=None, header=("name", "correction")):
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


# The names of examples, the header of the table, and what calls the second of them.
CALLED = {
    "a path": (NAMES, ("path", "correction"), "ash/1.png"),
    "a label": (NAMES, ("path", "label"), "ash/1.png"),
    "an absolute path": (NAMES, ("path", "label"), "/home/me/photos/ash/1.png"),
    "an absolute name": (("", "/a/1.png", *NAMES[2:]), ("path", "label"), "/a/1.png"),
    "any characters": (("", 'a,"b"\n.png', *NAMES[2:]), ("name", "correction"), 'a,"b"\n.png'),
    "a formula": (("", "=1.png", *NAMES[2:]), ("name", "correction"), "'=1.png"),
    "not UTF-8": (("", "\udcff.png", *NAMES[2:]), ("name", "correction"), r"\udcff.png"),
    "another form": (("", "e\u0302.png", *NAMES[2:]), ("name", "correction"), "\u00ea.png"),
    "the name of a row": (None, ("name", "correction"), "row 1"),
    "the number of a row": (None, ("row", "correction"), "1"),
}


@pytest.mark.parametrize("case", CALLED)
def test_a_table_calls_an_example_by(tmp_path, case):
    names, header, name = CALLED[case]
    found = apply(tmp_path, (name, "cedar"), header=header, given=examples(names))
    assert found.labels.tolist() == [0, 2, *LABELS[2:]]


def test_marks_of_no_class_correct_nothing(tmp_path):
    rows = [("ash/1.png", "cedar", ""), ("ash/2.png", "", "cannot tell")]
    found = apply(tmp_path, *rows, header=("path", "label", "mark"))
    assert found.labels.tolist() == [0, 2, *LABELS[2:]]


def test_a_corrected_example_has_one_class_in_place_of_its_votes(tmp_path):
    rows = np.arange(12)
    truths = Truths.of_entries(
        np.append(rows, 0), np.append(LABELS, 1), np.append(np.full(12, 2), 1), VOTES
    )
    found = apply(
        tmp_path, ("ash/0.png", "cedar"), ("ash/1.png", "-"), given=examples(truths=truths)
    )
    assert len(found.truths) == 11
    assert found.truths.labels.tolist() == found.labels.tolist()
    assert found.truths.shares[0].tolist() == [1, 0]
    assert found.truths.classes[0].tolist() == [2, 2]


REFUSED = {
    "classes": ([("ash/1.png", "ceder")], "must be -, .* got 'ceder'; did you mean 'cedar'"),
    "no examples": (
        [("ash/0.png", ""), ("elm/1.png", "-"), ("/a/gone.png", "ash")],
        r"photos has no elm/1.png \(row 3\)",
    ),
    "two corrections": ([("ash/1.png", "cedar"), ("ash/1.png", "-")], r"different .* \(row 3\)"),
    "two examples of a name": (
        [("twice.png", "cedar")],
        r"several examples .* twice.png \(row 2\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path, case):
    rows, message = REFUSED[case]
    given = examples((*NAMES[:10], "twice.png", "twice.png"))
    with pytest.raises(UserError, match=f"^config.dataset.corrections .*{message}"):
        apply(tmp_path, *rows, given=given)


def test_a_table_without_the_columns_or_for_other_rows_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"columns name, path or row.* it has a, b"):
        apply(tmp_path, header=("a", "b"))
    message = r"the label of row 1 \(row 2\) must be 'ash', as in .*; got 'birch'"
    rows, header = [("row 1", "birch", "cedar")], ("name", "label", "correction")
    with pytest.raises(UserError, match=message) as error:
        apply(tmp_path, *rows, given=examples(None), header=header)
    assert error.value.usually == "the table is for other data"
