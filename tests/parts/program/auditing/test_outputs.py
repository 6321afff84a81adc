"""The table of an audit: texts of any characters, which `config.dataset.corrections` reads back."""

import codecs
import csv
import io

import numpy as np

from train.auditing import findings, outputs
from train.auditing.examples import AuditedExamples
from train.data import Examples, corrections

NAMES = ('=cmd|"a",b', "two\nlines", "not utf-8 \udcff", "-", "'=quoted", "+1", "Ch\u00eane")
CLASSES = ("=1+1", "\udcff", "oak")


def found():
    """Findings about an example of each name; the last one cannot be judged."""
    size = len(NAMES)
    labels = np.arange(size, dtype=np.int32) % 3
    every = AuditedExamples(
        parts=(Examples.of_source(np.zeros((size, 1), np.float32), labels, CLASSES, "rows"),),
        places=np.arange(size),
        labels=labels,
        names=np.array(NAMES, object),
        splits=np.full(size, "train", object),
        groups=np.array([f"of {name}" for name in NAMES], object),
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
    given = Examples.of_source(
        np.zeros((7, 1)), np.zeros(7), CLASSES, "photos", names=np.array(NAMES)
    )
    corrected = corrections.apply(given, str(tmp_path / "a.csv"))
    # The last of the ranks is the first example.
    by_rank = [CLASSES[label] for label in (found().examples.labels[found().order][:3])]
    expected = [by_rank[number % 3] for number in range(6)][::-1]
    assert [CLASSES[label] for label in corrected.labels] == expected
    assert corrected.names.tolist() == [*NAMES[:6]]
