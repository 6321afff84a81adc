"""The table of an audit: texts of any characters, which `config.dataset.corrections` reads back."""

import codecs
import csv
import io

import numpy as np

from train.auditing import findings, outputs
from train.auditing.examples import AuditedExamples
from train.data.own import corrections
from train.data.own.listing import NO_SPLIT, Listing
from train.data.records import Split

NAMES = ('=cmd|"a",b', "two\nlines", "not utf-8 \udcff", "-", "'=quoted", "+1", "Ch\u00eane")
CLASSES = ("=1+1", "\udcff", "oak")


def found():
    """Findings about an example of each name; the last one cannot be judged."""
    size = len(NAMES)
    labels = np.arange(size, dtype=np.int32) % 3
    every = AuditedExamples(
        parts=(Split(np.zeros((size, 1), np.float32), labels),),
        places=np.arange(size),
        labels=labels,
        names=np.array(NAMES, object),
        splits=np.full(size, "train", object),
        groups=np.array([f"group {name}" for name in NAMES], object),
        class_names=CLASSES,
        mean=np.zeros(1, np.float32),
        scale=np.ones(1, np.float32),
    )
    judged = np.arange(size - 1)
    return findings.Findings(
        examples=every.take(judged),
        others=every.take(np.array([size - 1])),
        margins=-judged.astype(float),
        probabilities=np.full(size - 1, 0.25),
        likely=labels[judged],
        confident=labels[judged],
    )


def rows(table):
    """The rows of a table, which has a mark of byte order, for spreadsheets."""
    assert table.startswith(codecs.BOM_UTF8)
    return list(csv.DictReader(io.StringIO(table.decode("utf-8-sig"), newline="")))


def test_every_example_can_be_corrected_by_its_table(tmp_path):
    table = rows(outputs.to_csv(found(), []))
    assert [row["rank"] for row in table] == ["1", "2", "3", "4", "5", "6", ""]
    assert not any(
        row[column].startswith(("=", "+", "-"))
        for row in table
        for column in ("name", "group", "label", "likely")
        if row[column] != "-"
    )
    for number, row in enumerate(table):
        # A class of its own, and the last example is left out.
        row["correction"] = table[number % 3]["label"] if number < 6 else "-"
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, table[0].keys())
        writer.writeheader()
        writer.writerows(table)
    given = Listing(
        paths=NAMES,
        labels=np.zeros(len(NAMES), np.int32),
        roles=np.full(len(NAMES), NO_SPLIT, np.int8),
        class_names=CLASSES,
    )
    corrected, left_out = corrections.apply(
        given, str(tmp_path / "a.csv"), NAMES, where="photos", example="image"
    )
    # The last of the ranks is the first example.
    by_rank = [CLASSES[label] for label in (found().examples.labels[found().order][:3])]
    expected = [by_rank[number % 3] for number in range(6)][::-1]
    assert [CLASSES[label] for label in corrected.labels[:6]] == expected
    assert np.flatnonzero(left_out).tolist() == [6]
