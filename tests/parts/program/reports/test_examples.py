"""The tables of errors against plain loops, and read back with any names."""

import csv
import dataclasses
from collections import Counter

import numpy as np
import pytest

from tests import reference
from tests.parts.program.reports.made_scores import NUM_CLASSES, UNKNOWN, draw
from train.data.classes import Classes
from train.reports.examples import ExampleTable
from train.reports.rules import parse
from train.scores import scores as of_scores

NUMBER, KS = 250, (1, 2)
# The last two are classes that the classifier does not know.
KNOWN = ["oak", "ash, red", 'the "elm"', "fir\nx", "yew", "=1+1", *"abcdef"]
CLASS_NAMES = [*KNOWN, *UNKNOWN]
EVIL = ["a,b.png", 'c"d".png', "e\nf\r.png", "g\u202eh.png", "i\udc80.png", "=2+2", " j "]


@pytest.fixture
def examples(rng):
    names = [*EVIL, *(f"{row}.png" for row in range(len(EVIL), NUMBER))]
    return dataclasses.replace(
        draw(rng, NUMBER, num_labels=NUM_CLASSES + 1),
        classes=Classes.of(KNOWN),
        names=np.array(names, object),
        groups=np.array([f"{row // 2}" for row in range(NUMBER)], object),
    )


@pytest.fixture
def table(examples, monkeypatch):
    # Several chunks, the last of them smaller.
    monkeypatch.setattr(of_scores, "CHUNK", 16)
    return ExampleTable.of(examples, parse("adaptive=0.7").fit(examples, ""), KS)


def sets_of(examples):
    """Whether the sets have their labels, and their sizes."""
    members = reference.adaptive_set(examples.values, error=0.3)
    members = np.pad(members, ((0, 0), (0, 2)))
    return members[np.arange(NUMBER), examples.labels], members.sum(axis=1)


def read(path):
    """The rows of a table, without the apostrophe that keeps spreadsheets from computing texts."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert not [cell for row in rows for cell in row.values() if cell.startswith("=")]
    return [{name: cell.removeprefix("'") for name, cell in row.items()} for row in rows]


def test_every_example_is_a_row_that_is_read_back(table, examples, tmp_path):
    written = table.write(tmp_path / "errors.html")
    assert {file.name for file in written.values()} == {
        "errors.csv",
        "errors.classes.csv",
        "errors.confusions.csv",
    }
    rows = read(tmp_path / "errors.csv")
    assert len(rows) == NUMBER
    inside, sizes = sets_of(examples)
    for index, row in enumerate(rows):
        scores, label = examples.values[index], int(examples.labels[index])
        # A name that is not UTF-8 has its byte as a literal.
        assert row["name"] == examples.names[index].replace("\udc80", "\\udc80")
        assert row["group"] == f"{index // 2}"
        assert row["label"] == CLASS_NAMES[label]
        best = int(np.argmax(scores))
        assert row["predicted"] == CLASS_NAMES[best]
        assert int(row["rank"]) == examples.ranks[index]
        assert np.float32(row["predicted_probability"]) == scores[best]
        assert row["in_set"] == str(int(inside[index]))
        assert int(row["set_size"]) == sizes[index]
        if label < NUM_CLASSES:
            assert np.float32(row["probability"]) == scores[label]
            assert float(row["loss"]) == pytest.approx(examples.loss[index], rel=1e-6)
        else:
            assert (row["probability"], row["loss"]) == ("", "")


def test_classes_and_confusions_are_counted(table, examples, tmp_path):
    table.write(tmp_path / "errors.csv")
    labels, best = examples.labels.tolist(), examples.values.argmax(axis=1).tolist()
    wrong = Counter((label, one) for label, one in zip(labels, best, strict=True) if label != one)
    pairs = read(tmp_path / "errors.confusions.csv")
    found = {
        (CLASS_NAMES.index(row["label"]), CLASS_NAMES.index(row["predicted"])): int(row["examples"])
        for row in pairs
    }
    assert found == wrong
    counts = [int(row["examples"]) for row in pairs]
    assert counts == sorted(counts, reverse=True)
    share = float(pairs[0]["share_of_label"])
    of_label = labels.count(CLASS_NAMES.index(pairs[0]["label"]))
    assert share == pytest.approx(counts[0] / of_label, rel=1e-8)
    rows = read(tmp_path / "errors.classes.csv")
    assert sorted(row["class"] for row in rows) == sorted(CLASS_NAMES[: NUM_CLASSES + 1])
    coverages = [float(row["coverage"]) for row in rows]
    assert coverages == sorted(coverages)
    inside, sizes = sets_of(examples)
    for row in rows:
        label = CLASS_NAMES.index(row["class"])
        ranks = examples.ranks[examples.labels == label]
        assert int(row["examples"]) == len(ranks)
        for k in KS:
            assert float(row[f"top_{k}_accuracy"]) == pytest.approx((ranks < k).mean(), rel=1e-8)
        of_class = examples.labels == label
        assert float(row["coverage"]) == pytest.approx(inside[of_class].mean(), rel=1e-8)
        assert float(row["set_size"]) == pytest.approx(sizes[of_class].mean(), rel=1e-8)
        most = max(wrong[label, one] for one in range(NUM_CLASSES))
        assert int(row["confused_examples"]) == most
        other = row["most_confused_with"]
        assert (wrong[label, CLASS_NAMES.index(other)] if other else 0) == most
    chosen = [4, 0, NUM_CLASSES]
    matrix = table.confusion_matrix(chosen)
    for i, label in enumerate(chosen):
        for j, other in enumerate(chosen):
            pairs = [*zip(labels, best, strict=True)].count((label, other))
            assert matrix[i, j] == pairs
