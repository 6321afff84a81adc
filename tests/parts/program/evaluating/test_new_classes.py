"""Sets that may say "none of these", on the unknown classes of a run.

A run on the digits 0 to 7 gets rows of all digits. Its report counts what lines and programs say.
"""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.parts.program.forked import start_each

DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
KNOWN = 8
# One of each way to make them: of the logits, of the features, of both.
SCORES = ("energy", "probability", "neighbors", "mahalanobis", "either")


def text(score):
    return f"coverage=0.8, new_score={score}"


def run(module, *starts):
    for one in start_each(f"train.{module}", starts, DEVICES):
        assert one.returncode == 0, one


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on some of the classes, and new rows of all classes."""
    folder = tmp_path_factory.mktemp("new_classes")
    digits = load_digits()
    features, labels = digits.data.astype(np.float32), digits.target
    places = np.arange(len(labels))
    split = np.where(places % 3 == 0, "train", np.where(places % 3 == 1, "val", "test"))
    kept, is_new = labels < KNOWN, split == "test"
    arrays = {"features": features, "labels": labels, "split": split}
    np.savez(folder / "rows.npz", **{name: array[kept] for name, array in arrays.items()})
    np.savez(folder / "new.npz", features=features[is_new], labels=labels[is_new])
    run(
        "main",
        [
            *("--config=configs/features.py", "--config.model.name=mlp"),
            *(f"--config.dataset.path={folder}/rows.npz", f"--workdir={folder}/run"),
        ],
    )
    return folder


@pytest.fixture(scope="module")
def rows(folder):
    """The rows of the run by their texts; the row of a program; which examples are new."""
    given = [f"--workdir={folder}/run", f"--features={folder}/new.npz"]
    run(
        "evaluate",
        *([*given, f"--sets={text(score)}", f"--out={folder}/{score}.json"] for score in SCORES),
    )
    run("export", [given[0], f"--sets={text('either')}", f"--out={folder}/program"])
    run("evaluate", [f"--weights={folder}/program", given[1], f"--out={folder}/of_program.json"])
    found = {}
    for score in SCORES:
        report = json.loads((folder / f"{score}.json").read_text())
        assert 0.6 < report["none_of_these"]["auroc"] <= 1
        assert 0.5 < report["none_of_these"]["oscr_area"] <= report["none_of_these"]["auroc"]
        found |= report["sets"]
    of_program = json.loads((folder / "of_program.json").read_text())["sets"][text("either")]
    with np.load(folder / "new.npz") as arrays:
        return found, of_program, arrays["labels"] >= KNOWN


def lines_of(folder, asked):
    out = folder / "lines.jsonl"
    given = [f"--workdir={folder}/run", f"--features={folder}/new.npz", f"--out={out}"]
    run("predict", [*given, f"--sets={asked}"])
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    members = [{one["index"] for one in line["set"]} for line in lines]
    return lines, members


@pytest.mark.parametrize("score", SCORES)
def test_reports_count_what_lines_say(folder, rows, score):
    found, of_program, is_new = rows
    lines, members = lines_of(folder, text(score))
    with np.load(folder / "new.npz") as arrays:
        labels = arrays["labels"]
    hits = np.array([label in one for label, one in zip(labels, members, strict=True)])
    says_new = np.array([line["none_of_these"] for line in lines])
    expected = {
        "coverage": hits[~is_new].mean(),
        "none_of_these": says_new[~is_new].mean(),
        "coverage_of_all": np.where(is_new, says_new, hits).mean(),
    }
    # Both are computed in float32, in batches of other sizes: one row may be at a limit.
    one = 1.5 / min(is_new.sum(), (~is_new).sum())
    for row in (found[text(score)], *([of_program] if score == "either" else [])):
        assert {name: row[name] for name in expected} == pytest.approx(expected, abs=one)
        assert row["unknown"]["none_of_these"] == pytest.approx(says_new[is_new].mean(), abs=one)
        assert (row["unknown"]["examples"], row["promised"]) == (is_new.sum(), 0.8)
