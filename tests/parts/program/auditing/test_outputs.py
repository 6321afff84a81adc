"""The table of an audit: texts of any characters, which `config.dataset.corrections` reads back."""

import csv
import io

import numpy as np

from train.auditing import findings, outputs
from train.data import Examples, corrections

NAMES = ('=cmd|"a",b', "two\nlines", "not utf-8 \udcff", "-", "'=quoted", "+1", "Ch\u00eane")
CLASSES = ("=1+1", "\udcff", "oak")


def test_every_example_can_be_corrected_by_its_table(tmp_path):
    names = np.array(NAMES, object)
    given = Examples.of_source(
        np.zeros((7, 1)), np.arange(7) % 3, CLASSES, "photos", names=names, groups="of " + names
    )
    # The last example cannot be judged; the last of the others is the first of the table.
    judged = np.arange(6)
    labels = given.labels[judged]
    found = findings.Findings(
        given.take(judged), given.take(np.array([6])), -judged / 1, judged / 6, labels, labels
    )
    text = outputs.to_csv(found, []).decode("utf-8")
    # The mark of byte order tells a spreadsheet that it is UTF-8.
    assert text[0] == "\ufeff"
    table = [*csv.DictReader(io.StringIO(text[1:], newline=""))]
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
    corrected = corrections.apply(given, str(tmp_path / "a.csv"))
    assert corrected.labels.tolist() == [(5 - number % 3) % 3 for number in range(6)][::-1]
    assert corrected.names.tolist() == [*NAMES[:6]]
