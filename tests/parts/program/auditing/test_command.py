"""The command `train.audit` takes the corrections of its table, and never replaces it."""

import csv
import io

import numpy as np
import pytest

from tests.parts.program.auditing import planted
from tests.parts.program.data import matrices
from tests.parts.program.forked import start

NUMBER = 500


def audit(path, out, *arguments, code=0):
    done = start(
        "train.audit",
        "--config=features",
        f"--config.dataset.path={path}",
        f"--out={out}",
        *arguments,
    )
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


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """The folder of an audit of digits with planted labels."""
    folder = tmp_path_factory.mktemp("audit")
    features, labels, _ = (array[:NUMBER] for array in planted.digits())
    names = np.array([f'digits/"{index}",\n.png' for index in range(NUMBER)])
    path = matrices.write(folder / "a.npz", features=features, labels=labels, names=names)
    audit(path, folder / "audit.csv")
    return folder


def test_corrections_are_read_back_and_kept(audited):
    folder = audited
    rows = read(folder / "audit.csv")
    first, second = rows[:2]
    first["correction"], second["correction"] = first["likely"], "-"
    corrections = write(folder / "corrected.csv", rows)
    audit(folder / "a.npz", folder / "again.csv", corrections)
    again = {row["name"]: row for row in read(folder / "again.csv")}
    # What was given, not what it was corrected to: this table takes the place of the first.
    kept = again[first["name"]]
    assert (kept["label"], kept["correction"]) == (first["label"], first["correction"])
    assert float(kept["margin"]) > 0
    left_out = again[second["name"]]
    assert (left_out["label"], left_out["correction"]) == (second["label"], "-")
    assert left_out["rank"] == left_out["margin"] == ""
    assert len(again) == NUMBER
    write(folder / "again.csv", list(again.values()))
    audit(
        folder / "a.npz", folder / "third.csv", f"--config.dataset.corrections={folder}/again.csv"
    )
    assert read(folder / "third.csv") == read(folder / "again.csv")


def test_a_table_is_not_overwritten_by_its_audit(audited):
    folder = audited
    corrections = f"--config.dataset.corrections={folder}/audit.csv"
    done = audit(folder / "a.npz", folder / "audit.csv", corrections, code=2)
    assert "--out must not be what config.dataset.corrections names" in done.stderr
