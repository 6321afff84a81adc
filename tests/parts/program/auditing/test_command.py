"""The command `train.audit`: its table and its numbers, and how a run takes the corrections."""

import csv
import io
import json

import numpy as np
import pytest

from tests.parts.program.auditing import planted
from tests.parts.program.data.own import matrices
from tests.parts.program.forked import error_lines, start

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
    """The folder of an audit of digits with planted labels, and the right labels by name."""
    folder = tmp_path_factory.mktemp("audit")
    features, labels, is_wrong = (array[:NUMBER] for array in planted.digits())
    names = np.array([f'digits/"{index}",\n.png' for index in range(NUMBER)])
    path = matrices.write(folder / "a.npz", features=features, labels=labels, names=names)
    done = audit(path, folder / "audit.csv", f"--json={folder}/audit.json")
    wrong = dict(zip(names.tolist(), is_wrong.tolist(), strict=True))
    return folder, done.stdout, wrong


def test_the_table_has_every_example_the_least_plausible_first(audited):
    folder, _, is_wrong = audited
    rows = read(folder / "audit.csv")
    assert list(rows[0]) == [
        *("rank", "name", "group", "split", "label", "likely", "margin", "probability"),
        "correction",
    ]
    assert [row["rank"] for row in rows] == [str(rank) for rank in range(1, NUMBER + 1)]
    assert {row["name"] for row in rows} == is_wrong.keys()
    assert {row["split"] for row in rows} == {"train", "validation", "test"}
    assert {row["group"] for row in rows} == {row["correction"] for row in rows} == {""}
    margins = [float(row["margin"]) for row in rows]
    assert margins == sorted(margins)
    assert all((row["label"] == row["likely"]) == (float(row["margin"]) > 0) for row in rows)
    planted_first = [is_wrong[row["name"]] for row in rows]
    # With a quarter of the digits, 1 was measured for four other draws of some 22 labels.
    assert planted.found_early(np.arange(NUMBER), np.array(planted_first)) >= 0.8


def test_the_numbers_are_printed_and_written(audited):
    folder, printed, _ = audited
    numbers = json.loads((folder / "audit.json").read_text())
    assert numbers["examples"] == NUMBER
    assert numbers["not_judged"] == 0
    assert [one["class"] for one in numbers["classes"]] == [str(digit) for digit in range(10)]
    assert sum(one["examples"] for one in numbers["classes"]) == NUMBER
    wrong = sum(one["wrong"] for one in numbers["classes"])
    assert wrong == pytest.approx(numbers["wrong"])
    assert wrong == pytest.approx(sum(pair["wrong"] for pair in numbers["pairs"]))
    lines = printed.splitlines()
    assert lines[0].startswith(f"estimated: {wrong:,.0f} of 500 labels are wrong (")
    assert lines[1] == f"the heads agree with {100 * numbers['accuracy']:.1f} % of the labels"
    assert lines[-1].endswith(f"{folder}/audit.csv")
    assert f" {numbers['pairs'][0]['wrong']:.1f}" in printed


def test_corrections_are_read_back_and_kept(audited):
    folder, _, _ = audited
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


def test_a_run_is_trained_on_the_corrected_labels(audited):
    folder, _, _ = audited
    rows = read(folder / "audit.csv")
    for row in rows[:20]:
        row["correction"] = "-"
    corrections = write(folder / "left_out.csv", rows)
    run = ("--config=features", f"--config.dataset.path={folder}/a.npz", "--config.num_epochs=1")
    workdir = f"--workdir={folder}/run"
    done = start("train.main", *run, corrections, "--config.dataset.batch_size=64", workdir)
    assert done.returncode == 0, done.stderr
    # Of the training rows, those that are left; the others of their classes may take the places of
    # validation and test rows.
    classes = json.loads((folder / "run" / "classes.json").read_text())
    trained = sum(row["split"] == "train" for row in rows[20:])
    assert abs(sum(one["training_images"] for one in classes) - trained) <= 10
    # The labels of another table are those of another data set.
    rows[20]["correction"] = "-"
    write(folder / "left_out.csv", rows)
    done = start("train.evaluate", workdir)
    assert done.returncode == 2
    assert "is not the one that the run" in error_lines(done.stderr)[-1]


def test_a_table_is_not_overwritten_by_its_audit(audited):
    folder, _, _ = audited
    corrections = f"--config.dataset.corrections={folder}/audit.csv"
    done = audit(folder / "a.npz", folder / "audit.csv", corrections, code=2)
    assert error_lines(done.stderr) == [
        f"error: --out must not be what config.dataset.corrections names; {folder}/audit.csv is"
    ]
