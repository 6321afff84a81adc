"""`train.evaluate` in its own processes: a finished run, and a user's scores."""

import json
import shutil

import numpy as np
import pytest

from tests import reference
from tests.parts.program.forked import start_each

# Fewer devices than the run had, and a number that does not divide its batches.
ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}


def evaluate(*starts):
    return start_each("train.evaluate", starts, ENVIRONMENT)


def read(path):
    content = json.loads(path.read_text())
    # After tests changed files and wrote them back, it would have another content.
    if isinstance(content, dict):
        content.pop("sha256", None)
    return content


def test_a_half_of_validation_is_calibrated_on_and_the_other_evaluated(finished_run, tmp_path):
    workdir, train = shutil.copytree(finished_run, tmp_path / "run"), tmp_path / "train.json"
    rules = ("--rules=aps,raps", f"--figure={tmp_path}/rules.svg")
    ended = evaluate(
        [f"--workdir={workdir}", "--split=validation", "--calibration=half", "--ks=2,3", *rules],
        [f"--workdir={workdir}", "--split=train", f"--out={train}", "--coverages="],
    )
    for one in ended:
        assert (one.returncode, one.stderr) == (0, "")
    report = read(workdir / "evaluation_validation.json")
    assert report["num_examples"] == report["num_calibration_examples"] == 135
    assert "top_2_accuracy" in report["metrics"]
    assert "top_1_accuracy" not in report["metrics"]
    assert "<svg" in (tmp_path / "rules.svg").read_text()
    report = read(train)
    assert (report["num_examples"], report["num_calibration_examples"]) == (1257, 270)


def test_the_half_that_is_evaluated_is_not_the_one_that_is_calibrated_on(somebodys, tmp_path):
    given = [f"--scores={somebodys}/logits.npz", "--ks=2"]
    ended = evaluate(
        [*given, "--calibration=half", f"--out={tmp_path}/o", f"--scores_out={tmp_path}/s.npz"],
        [*given, f"--calibration={somebodys}/rest.npz", f"--out={tmp_path}/o2"],
        [f"--scores={tmp_path}/s.npz", f"--out={tmp_path}/again"],
    )
    assert [one.returncode for one in ended] == [0, 0, 0], [one.stderr for one in ended]
    with np.load(somebodys / "logits.npz") as given:
        scores, labels = softmax(given["logits"]), given["labels"]
    with np.load(tmp_path / "s.npz") as written:
        evaluated, evaluated_labels, names = written["scores"], written["labels"], set(written)
        assert written["class_names"].tolist() == [str(index) for index in range(6)]
        # The places in the file of --scores, of which a half is evaluated.
        places = [int(name.removeprefix("example ")) for name in written["names"]]
        np.testing.assert_array_equal(labels[places], evaluated_labels)
    assert names == {"scores", "labels", "loss", "names", "class_names"}
    # No two of these examples have the same scores.
    is_evaluated = np.isclose(scores[:, None], evaluated[None], rtol=1e-5).all(-1).any(1)
    assert is_evaluated.sum() == len(evaluated) == 100
    np.testing.assert_array_equal(labels[is_evaluated], evaluated_labels)
    threshold = reference.average_k_threshold(scores[~is_evaluated], k=2)
    assert read(tmp_path / "o")["thresholds"]["average_2"] == pytest.approx(threshold, rel=1e-5)
    apart = read(tmp_path / "o2")
    assert (apart["num_examples"], apart["num_calibration_examples"]) == (200, 100)
    assert apart["calibrated_on"] == "examples of --calibration"
    loss = read(tmp_path / "o")["metrics"]["loss"]
    assert read(tmp_path / "again")["metrics"]["loss"] == pytest.approx(loss, rel=1e-6)


def test_where_the_law_is_known_the_gap_to_the_best_is_said(tmp_path):
    small = {
        **{"num_classes": 8, "num_genera": 4, "num_train": 240, "num_validation": 150},
        **{"num_test": 160, "batch_size": 48, "long_tail_exponent": 2.0},
    }
    arguments = [
        "--config=configs/synthetic_latents.py",
        f"--workdir={tmp_path}/run",
        "--config.num_epochs=1",
        "--config.optimizer.decay_epochs=()",
        *(f"--config.dataset.{name}={value}" for name, value in small.items()),
    ]
    (trained,) = start_each("train.main", [arguments], ENVIRONMENT)
    assert trained.returncode == 0, trained.stderr
    on_test, on_balanced, on_half = evaluate(
        [f"--workdir={tmp_path}/run"],
        [f"--workdir={tmp_path}/run", "--split=balanced_test"],
        [f"--workdir={tmp_path}/run", "--split=validation", "--calibration=half"],
    )
    for done in (on_test, on_balanced, on_half):
        assert done.returncode == 0, done.stderr
    results = read(tmp_path / "run" / "results.json")
    balanced = read(tmp_path / "run" / "evaluation_balanced_test.json")
    assert balanced["num_examples"] == 8 * 30
    assert balanced["bayes"] == results["bayes_balanced_test"]
    for k in (1, 3, 5):
        # A class-balanced set, in float32.
        best = balanced["bayes"][f"macro_top_{k}_accuracy"]
        assert balanced["bayes"][f"top_{k}_accuracy"] == pytest.approx(best, rel=1e-6)
    report = read(tmp_path / "run" / "evaluation_test.json")
    assert report["bayes"] == results["bayes"]
    gap = report["gap_to_bayes"]
    # For only a group of classes the best over all is not the best.
    assert gap.keys() == {
        f"{a}{b}_{k}_accuracy"
        for a in ("", "macro_")
        for b in ("top", "average")
        for k in (1, 3, 5)
    }
    for name, value in gap.items():
        assert value == report["bayes"][name] - report["metrics"][name]
    assert "gap to the best possible" in on_test.stdout
    halved = read(tmp_path / "run" / "evaluation_validation.json")
    assert halved["num_examples"] == halved["num_calibration_examples"] == 75
    assert 0 < halved["bayes"]["top_5_accuracy"] <= 1


@pytest.fixture(scope="module")
def somebodys(tmp_path_factory):
    """Scores of two sets of examples."""
    folder = tmp_path_factory.mktemp("somebodys")
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(300, 6)) * 3
    labels = rng.integers(0, 5, size=300)
    np.savez(folder / "logits.npz", logits=logits[:200], labels=labels[:200].astype(np.uint8))
    np.savez(folder / "rest.npz", logits=logits[200:], labels=labels[200:])
    return folder


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)
