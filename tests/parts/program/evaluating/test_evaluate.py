"""`train.evaluate` on splits and on scores from elsewhere: what it calibrates on, and its files."""

import csv
import itertools
import json
import shutil

import numpy as np
import pytest
from PIL import Image
from scipy import special

from tests import reference
from tests.parts.program.forked import start_each

# Fewer devices than the run had, and a number that does not divide its batches.
DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}
SYNTHETIC = {
    **{"num_classes": 8, "num_genera": 4, "num_train": 240, "num_validation": 150},
    **{"num_test": 160, "batch_size": 48, "long_tail_exponent": 2.0},
}


def evaluate(*starts):
    ended = start_each("train.evaluate", starts, DEVICES)
    assert [one.returncode for one in ended] == [0] * len(starts), ended
    return ended


@pytest.fixture(scope="module")
def somebodys(tmp_path_factory):
    """Scores of two sets of examples, and what is above their classes."""
    folder = tmp_path_factory.mktemp("somebodys")
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(300, 6)) * 3
    labels = np.append(logits[:150].argmax(axis=1), rng.integers(0, 6, size=150))
    names = np.array([f"{genus} {species}" for genus in "ab" for species in "xyz"])
    for name, some in {"test": slice(0, None, 2), "rest": slice(1, None, 2)}.items():
        given = {"logits": logits[some], "labels": labels[some].astype(np.uint8)}
        np.savez(folder / f"{name}.npz", class_names=names, **given)
    return folder


def test_splits_are_evaluated_with_limits_of_validation_or_of_one_half(finished_run, tmp_path):
    workdir = shutil.copytree(finished_run, tmp_path / "run")
    evaluate(
        [f"--workdir={workdir}"],
        [f"--workdir={workdir}", "--split=train", "--coverage=0.9"],
        [f"--workdir={workdir}", "--split=validation", "--calibration=half", "--top_k=2"],
    )
    paths = {name: workdir / f"evaluation_{name}.json" for name in ("test", "train")}
    of = {name: json.loads(path.read_text()) for name, path in paths.items()}
    assert of["train"]["examples"] == 1257
    assert of["train"]["calibrated_on"]["examples"] == 270
    limits = {one["sets"]["coverage=0.9"]["limit"] for one in of.values()}
    assert len(limits) == 1
    half = json.loads((workdir / "evaluation_validation_recalibrated.json").read_text())
    assert (half["examples"], [*half["sets"]]) == (135, ["top_k=2"])


def test_one_half_of_scores_calibrates_and_the_other_is_evaluated(somebodys, tmp_path):
    given = [f"--scores={somebodys}/test.npz", "--average_k=2"]
    _, _, same = evaluate(
        [*given, "--calibration=half", f"--out={tmp_path}/h.json", f"--out={tmp_path}/h.npz"],
        [*given, f"--calibration={somebodys}/rest.npz", f"--out={tmp_path}/r.json"],
        [*given, f"--out={tmp_path}/s.json"],
    )
    with np.load(somebodys / "test.npz") as one, np.load(somebodys / "rest.npz") as other:
        scores, rest = (special.softmax(each["logits"], axis=1) for each in (one, other))
        labels = one["labels"]
    with np.load(tmp_path / "h.npz") as written:
        places = [int(name.removeprefix("example ")) for name in written["names"]]
        np.testing.assert_allclose(written["scores"], scores[places], rtol=1e-5)
        np.testing.assert_array_equal(written["labels"], labels[places])
    others = np.delete(scores, places, axis=0)
    assert len(places) == len(others) == 75
    for name, calibrating in {"h": others, "r": rest, "s": scores}.items():
        report = json.loads((tmp_path / f"{name}.json").read_text())
        expected = reference.average_k_threshold(calibrating, k=2)
        assert report["sets"]["average_k=2"]["limit"] == pytest.approx(expected, rel=1e-5)
        assert report["calibrated_on"]["examples"] == len(calibrating)
    assert "look better than they are" in same.stdout


def test_a_file_is_written_by_its_suffix(somebodys, tmp_path):
    files = [tmp_path / name for name in ("r.json", "r.csv", "r.npz", "r.svg", "r.pdf", "r.png")]
    (shown,) = evaluate(
        [
            *(f"--scores={somebodys}/test.npz", f"--calibration={somebodys}/rest.npz", "--full"),
            *(f"--out={file}" for file in files),
            *("--taxonomy=first_word", f"--examples={tmp_path}/wrong.csv"),
        ]
    )
    report = json.loads((tmp_path / "r.json").read_text())
    with (tmp_path / "r.csv").open(newline="") as file:
        rows = {row["sets"]: row for row in csv.DictReader(file)}
    # All conformal rules but "pas", for which there are no training images.
    assert "coverage=0.9, rule=taxonomic" in report["sets"]
    assert "coverage=0.9, rule=pas" not in report["sets"]
    assert rows.keys() == report["sets"].keys()
    for text, row in report["sets"].items():
        assert float(rows[text]["coverage"]) == row["coverage"]
        assert float(rows[text]["high"]) == row["interval"][1]
        assert row["ranks"]["genus"]["coverage"] >= row["coverage"]
    assert "<svg" in (tmp_path / "r.svg").read_text()
    assert (tmp_path / "r.pdf").read_bytes().startswith(b"%PDF")
    for name in ("r.png", "wrong.confusions.png"):
        with Image.open(tmp_path / name) as figure:
            figure.verify()
    assert not (tmp_path / "wrong.html").exists()
    assert all(str(file) in shown.stdout for file in files)


def test_where_the_law_is_known_the_best_possible_is_said(tmp_path):
    arguments = [
        *("--config=configs/synthetic_latents.py", "--config.num_epochs=1"),
        *("--config.optimizer.decay_epochs=()", f"--workdir={tmp_path}/run"),
        *(f"--config.dataset.{name}={value}" for name, value in SYNTHETIC.items()),
    ]
    (trained,) = start_each("train.main", [arguments], DEVICES)
    assert trained.returncode == 0, trained.stderr
    workdir = f"--workdir={tmp_path}/run"
    shown, _ = evaluate([workdir], [workdir, "--split=balanced_test"])
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    for split, known in {"test": "bayes", "balanced_test": "bayes_balanced_test"}.items():
        report = (tmp_path / "run" / f"evaluation_{split}.json").read_text()
        best = json.loads(report)["best_possible"]
        for rule, k in itertools.product(("top", "average"), (1, 3, 5)):
            for name, prefix in {"coverage": "", "macro": "macro_"}.items():
                expected = results[known][f"{prefix}{rule}_{k}_accuracy"]
                assert best[f"{rule}_k={k}"][name] == expected
    assert " best " in shown.stdout
