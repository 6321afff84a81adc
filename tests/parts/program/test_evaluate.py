"""`train.evaluate` in its own processes: a finished run, and a user's scores."""

import json
import shutil

import numpy as np
import pytest

from tests import reference
from tests.parts.program.forked import start_each
from tests.parts.program.sealed import unsealed
from train.evaluation.conformal_rules import RULES

# Fewer devices than the run had, and a number that does not divide its batches.
ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}


def evaluate(*starts):
    return start_each("train.evaluate", starts, ENVIRONMENT)


@pytest.fixture(scope="module")
def workdir(finished_run, tmp_path_factory):
    return shutil.copytree(finished_run, tmp_path_factory.mktemp("evaluate") / "run")


@pytest.fixture(scope="module")
def evaluated(workdir):
    """The run's three ways of being evaluated, with everything that they write."""
    ended = evaluate(
        [f"--workdir={workdir}", f"--scores={workdir}/test.npz"],
        [f"--workdir={workdir}", "--split=validation", "--calibration=half", "--ks=2,3"],
        [f"--workdir={workdir}", "--split=train", f"--out={workdir}/x.json", "--coverages="],
    )
    for one in ended:
        assert (one.returncode, one.stderr) == (0, "")
    return ended


def read(path):
    content = json.loads(path.read_text())
    # After tests changed files and wrote them back, it would have another content.
    if isinstance(content, dict):
        content.pop("sha256", None)
    return content


def test_a_half_of_validation_is_calibrated_on_and_the_other_evaluated(workdir, evaluated):
    report = read(workdir / "evaluation_validation.json")
    assert report["num_examples"] == report["num_calibration_examples"] == 135
    assert report["calibrated_on"] == "the other half of the examples"
    assert "top_2_accuracy" in report["metrics"]
    assert "top_1_accuracy" not in report["metrics"]


def test_the_training_images_can_be_looked_at(workdir, evaluated):
    report = read(workdir / "x.json")
    assert (report["num_examples"], report["num_calibration_examples"]) == (1257, 270)
    assert report["coverages"] == {}
    assert not (workdir / "evaluation_train.json").exists()


def test_the_half_that_is_evaluated_is_not_the_one_that_is_calibrated_on(somebodys, tmp_path):
    given = [f"--logits={somebodys}/logits.npy", f"--labels={somebodys}/labels.npy", "--ks=2"]
    others = [f"--calibration_logits={somebodys}/rest.npz"]
    ended = evaluate(
        [*given, "--calibration=half", f"--out={tmp_path}/o", f"--scores={tmp_path}/s.npz"],
        [*given, "--calibration=half", f"--out={tmp_path}/o2", *others],
        [f"--logits={tmp_path}/s.npz", f"--out={tmp_path}/again"],
    )
    assert [one.returncode for one in ended] == [0, 0, 0], [one.stderr for one in ended]
    scores, labels = softmax(np.load(somebodys / "logits.npy")), np.load(somebodys / "labels.npy")
    with np.load(tmp_path / "s.npz") as written:
        evaluated, evaluated_labels, names = written["scores"], written["labels"], set(written)
        assert written["class_names"].tolist() == [str(index) for index in range(6)]
        # The places in the file of --logits, of which a half is evaluated.
        places = [int(name.removeprefix("example ")) for name in written["names"]]
        np.testing.assert_array_equal(labels_of(somebodys)[places], evaluated_labels)
    assert names == {"scores", "labels", "loss", "names", "class_names"}
    # No two of these examples have the same scores.
    is_evaluated = np.isclose(scores[:, None], evaluated[None], rtol=1e-5).all(-1).any(1)
    assert is_evaluated.sum() == len(evaluated) == 100
    np.testing.assert_array_equal(labels[is_evaluated], evaluated_labels)
    threshold = reference.average_k_threshold(scores[~is_evaluated], k=2)
    assert read(tmp_path / "o")["thresholds"]["average_2"] == pytest.approx(threshold, rel=1e-5)
    apart = read(tmp_path / "o2")
    assert (apart["num_examples"], apart["num_calibration_examples"]) == (200, 50)
    assert apart["calibrated_on"] == "half of the examples of --calibration_logits"
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
    """Scores of two sets of examples, in several kinds of files."""
    folder = tmp_path_factory.mktemp("somebodys")
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(300, 6)) * 3
    labels = rng.integers(0, 5, size=300)
    np.save(folder / "logits.npy", logits[:200])
    np.save(folder / "labels.npy", labels[:200].astype(np.uint8))
    np.savetxt(folder / "labels.txt", labels[200:], fmt="%d")
    np.savez(folder / "calibration.npz", logits=logits[200:].astype(np.float16))
    np.savez(folder / "rest.npz", logits=logits[200:], labels=labels[200:])
    np.savetxt(folder / "counts.txt", [3, 50, 500, 20, 100, 101], fmt="%d")
    return folder


def labels_of(somebodys):
    return np.load(somebodys / "labels.npy")


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def test_somebodys_scores_are_evaluated_without_a_model(somebodys):
    given = [
        f"--logits={somebodys}/logits.npy",
        f"--labels={somebodys}/labels.npy",
        f"--calibration_logits={somebodys}/calibration.npz",
        f"--calibration_labels={somebodys}/labels.txt",
        "--ks=2",
    ]
    rules = ["--rules=all", "--coverages=0.75", f"--figure={somebodys}/rules.svg"]
    ended = evaluate(
        [*given, f"--out={somebodys}/out.json"],
        [*given, f"--class_counts={somebodys}/counts.txt", f"--out={somebodys}/shots.json", *rules],
        given[:2],
    )
    assert [one.returncode for one in ended] == [0, 0, 0], [one.stderr for one in ended]
    logits, labels = np.load(somebodys / "logits.npy"), np.load(somebodys / "labels.npy")
    with np.load(somebodys / "calibration.npz") as file:
        calibration = softmax(file["logits"].astype(np.float64))
    scores = softmax(logits)
    report = read(somebodys / "out.json")
    threshold = reference.average_k_threshold(calibration, k=2)
    # A softmax in 32 bits; no score of these is so near the threshold.
    assert report["thresholds"]["average_2"] == pytest.approx(threshold, rel=1e-5)
    hits = reference.threshold_hits(scores, labels, threshold)
    assert report["metrics"]["average_2_accuracy"] == pytest.approx(hits.mean(), rel=1e-6)
    loss = -np.log(scores[np.arange(200), labels]).mean()
    assert report["metrics"]["loss"] == pytest.approx(loss, rel=1e-5)
    assert not [name for name in report["metrics"] if name.startswith(("few", "medium", "many"))]
    by_shot = reference.shot_accuracy(hits, labels, class_counts=[3, 50, 500, 20, 100, 101])
    found = read(somebodys / "shots.json")["metrics"]
    assert found["few_average_2_accuracy"] == pytest.approx(by_shot["few"], rel=1e-6)
    compared = read(somebodys / "shots.json")["conformal_rules"]
    assert list(compared) == ["0.75"]
    # The classes of a file of scores have nothing above them, unless --taxonomy is given.
    possible = [name for name, rule in RULES.items() if not rule.needs_taxonomy]
    assert list(compared["0.75"]) == possible
    assert "class_conditional" in ended[1].stdout
    assert "<svg" in (somebodys / "rules.svg").read_text()
    assert "the same examples" in ended[2].stdout
    assert "average-5" in ended[2].stdout


def test_a_data_set_that_is_not_the_runs_is_refused(workdir, tmp_path):
    other = shutil.copytree(workdir, tmp_path / "other")
    classes = read(other / "classes.json")
    classes[3]["training_images"] += 1
    (other / "classes.json").write_text(json.dumps(classes))
    # Without the digest of the classes, as runs of earlier versions have them.
    (other / "results.json").write_text(json.dumps(unsealed(other / "results.json")))
    checkpoints = shutil.copytree(workdir, tmp_path / "damaged") / "checkpoints"
    for file in checkpoints.glob("*/state/**/*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:-1] + b"x")
    refused, damaged = evaluate([f"--workdir={other}"], [f"--workdir={checkpoints.parent}"])
    assert refused.returncode == 2
    assert "is not the one that the run" in refused.stderr
    assert damaged.returncode == 2
    assert "changed since it was written" in damaged.stderr
    assert damaged.stderr.count("\n") == 1
