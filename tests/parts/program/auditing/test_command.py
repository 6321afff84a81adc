"""The command `train.audit` takes the corrections of its table, and never replaces it."""

import csv
import io

import numpy as np
import sklearn.datasets

from tests.parts.program.forked import start

NUMBER = 500


def audit(folder, out, *arguments, code=0):
    given = ("--config=features", f"--config.dataset.path={folder}/a.npz", f"--out={folder}/{out}")
    done = start("train.audit", *given, *arguments)
    assert done.returncode == code, done.stderr
    return done


def read(table):
    return list(csv.DictReader(io.StringIO(table.read_text("utf-8-sig"), newline="")))


def write(table, rows):
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return f"--config.dataset.corrections={table}"


def test_corrections_are_read_back_and_kept(tmp_path):
    digits = sklearn.datasets.load_digits(return_X_y=True)
    features, labels = (array[:NUMBER] for array in digits)
    np.savez(tmp_path / "a.npz", features=features.astype(np.float32), labels=labels)
    audit(tmp_path, "audit.csv")
    rows = read(tmp_path / "audit.csv")
    first, second = rows[:2]
    first["correction"], second["correction"] = first["likely"], "-"
    corrections = write(tmp_path / "corrected.csv", rows)
    audit(tmp_path, "again.csv", corrections)
    again = {row["name"]: row for row in read(tmp_path / "again.csv")}
    # What was given, not what it was corrected to: this table takes the place of the first.
    kept, left_out = again[first["name"]], again[second["name"]]
    assert (kept["label"], kept["correction"]) == (first["label"], first["correction"])
    assert float(kept["margin"]) > 0
    assert (left_out["label"], left_out["correction"]) == (second["label"], "-")
    assert left_out["rank"] == left_out["margin"] == ""
    assert len(again) == NUMBER
    audit(tmp_path, "third.csv", write(tmp_path / "again.csv", list(again.values())))
    assert read(tmp_path / "third.csv") == read(tmp_path / "again.csv")
    # A table is not replaced by the audit that takes its corrections.
    refused = audit(tmp_path, "corrected.csv", corrections, code=2)
    assert "--out" in refused.stderr
