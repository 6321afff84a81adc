"""Sets that may say "none of these", and answers with a bounded error, by real runs.

A run on the digits 0 to 7 gets rows of all digits.
"""

import json
import math
import shutil

import jax
import jax.export
import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.parts.program.forked import check_mistakes, start_each
from tests.parts.program.sealed import unsealed
from train.evaluation import new_classes, outlier_scores

ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
KNOWN = 8
COVERAGE = 0.8
# Each way to make one: of both, of the logits, and of the features. The logit is as the energy.
SCORES = [name for name in outlier_scores.SCORES if name != "logit"]
CHOSEN = (f"--coverage={COVERAGE}", "--allow_new")


def run(module, *starts):
    ended = start_each(f"train.{module}", starts, ENVIRONMENT)
    for one in ended:
        assert one.returncode == 0, one
    return ended


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on some of the classes, and new rows of all classes."""
    folder = tmp_path_factory.mktemp("new_classes")
    digits = load_digits()
    features, labels = digits.data.astype(np.float32), digits.target
    places = np.arange(len(labels))
    split = np.where(places % 3 == 0, "train", np.where(places % 3 == 1, "val", "test"))
    kept = labels < KNOWN
    arrays = {"features": features, "labels": labels, "split": split}
    np.savez(folder / "rows.npz", **{name: array[kept] for name, array in arrays.items()})
    is_new = split == "test"
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
def evaluated(folder):
    """The reports of the rows as new data, by every score; and the scores of validation."""
    workdir = f"--workdir={folder}/run"
    run(
        "evaluate",
        [workdir, "--split=validation", f"--scores_out={folder}/validation.npz"],
        *(
            [
                *(workdir, f"--features={folder}/new.npz", f"--out={folder}/{score}.json"),
                *("--allow_new", f"--new_score={score}", "--max_error=0.02", "--rules=aps"),
            ]
            for score in SCORES
        ),
    )
    return {score: json.loads((folder / f"{score}.json").read_text()) for score in SCORES}


@pytest.fixture(scope="module")
def predicted(folder, evaluated):
    """The lines of the same rows, by every score."""
    arguments = (f"--workdir={folder}/run", f"--features={folder}/new.npz", *CHOSEN)
    run(
        "predict",
        *(
            [*arguments, f"--new_score={score}", f"--out={folder}/{score}.jsonl"]
            for score in SCORES
        ),
    )
    return {score: lines(folder / f"{score}.jsonl") for score in SCORES}


def test_reports_count_what_lines_say(folder, evaluated, predicted):
    with np.load(folder / "new.npz") as found:
        labels = found["labels"]
    is_new = labels >= KNOWN
    for score, found in predicted.items():
        says_new = np.array([line["none_of_these"] for line in found])
        sizes = np.array([line["size"] for line in found])
        members = [{one["index"] for one in line["set"]} for line in found]
        hits = np.array([label in one for label, one in zip(labels, members, strict=True)])
        assert not hits[is_new].any()
        assert (sizes[says_new] == 0).all()
        assert says_new[sizes == 0].all()
        report = evaluated[score]["none_of_these"]
        rates = report["coverages"][f"{COVERAGE}"]["rules"]["lac"]
        # Both are computed in float32, in batches of other sizes: one row may be at a limit.
        one = 1.5 / min(is_new.sum(), (~is_new).sum())
        assert rates["known"]["coverage"] == pytest.approx(hits[~is_new].mean(), abs=one)
        assert rates["known"]["none_of_these"] == pytest.approx(says_new[~is_new].mean(), abs=one)
        assert rates["unknown"]["none_of_these"] == pytest.approx(says_new[is_new].mean(), abs=one)
        assert rates["unknown"]["none_of_these_alone"] == rates["unknown"]["none_of_these"]
        assert report["num_examples_of_unknown_classes"] == is_new.sum()
        # Digits that are not known are more unusual than others, by every score.
        assert report["auroc"] > 0.6
        assert 0.5 < report["oscr_area"] <= report["auroc"]
        assert set(report["coverages"][f"{COVERAGE}"]["rules"]) == {"lac", "aps"}


def test_exported_programs_say_it_as_predict_does(folder, predicted):
    workdir = f"--workdir={folder}/run"
    with np.load(folder / "new.npz") as found:
        rows, labels = found["features"], found["labels"]
    programs = ("either", "mahalanobis", "neighbors")
    run(
        "export",
        *(
            [workdir, *CHOSEN, f"--new_score={score}", f"--out={folder}/{score}.program"]
            for score in programs
        ),
    )
    for score in programs:
        path = folder / f"{score}.program"
        program = jax.export.deserialize(bytearray(path.read_bytes()))
        _, chosen, none_of_these = map(np.asarray, program.call(rows))
        says_new = np.array([line["none_of_these"] for line in predicted[score]])
        # Compiled with other optimizations: one row may be at a limit.
        assert (none_of_these != says_new).sum() <= 1
        assert (chosen.any(axis=1) != none_of_these).all()
        with pytest.raises(ValueError, match="Expected value >= 1 for dimension variable 'n'"):
            program.call(rows[:0])
        described = json.loads((folder / f"{score}.program.json").read_text())
        assert described["outputs"]["none_of_these"] == {"shape": ["n"], "dtype": "bool"}
        assert described["outlier_score"]["name"] == score
    out = folder / "of_program.json"
    run("evaluate", [f"--program={path}", f"--features={folder}/new.npz", f"--out={out}"])
    report = json.loads(out.read_text())["sets"]
    assert report["promised"] == COVERAGE
    detected = report["none_of_these"]["unknown"]["none_of_these"]
    assert detected == pytest.approx(none_of_these[labels >= KNOWN].mean(), abs=0.01)


def test_answers_with_a_bounded_error(folder, evaluated):
    arguments = (f"--workdir={folder}/run", f"--features={folder}/new.npz", "--max_error=0.02")
    run("predict", [*arguments, f"--out={folder}/sure.jsonl", f"--html={folder}/sure.html"])
    found = lines(folder / "sure.jsonl")
    with np.load(folder / "new.npz") as rows:
        labels = rows["labels"]
    known = labels < KNOWN
    answers = [line["set"][0]["index"] if line["set"] else None for line in found]
    answered = np.array([answer is not None for answer in answers])
    wrong = np.array([answer != label for answer, label in zip(answers, labels, strict=True)])
    assert {line["size"] for line in found} == {0, 1}
    for line in found:
        assert all(one["probability"] > line["threshold"] for one in line["set"])
    report = evaluated["energy"]["selective"]
    one = 1.5 / known.sum()
    assert report["answered"] == pytest.approx(answered[known].mean(), abs=one)
    assert report["error_of_answers"] == pytest.approx(wrong[known & answered].mean(), abs=one)
    # Fewer answers for digits that are not known; nothing promises it.
    assert answered[~known].mean() < answered[known].mean()
    assert "An answer is the class of highest probability" in (folder / "sure.html").read_text()
    # The same threshold from scores without a model.
    out = folder / "logits.json"
    scores = f"{folder}/validation.npz"
    run("evaluate", [f"--scores={scores}", "--max_error=0.02", f"--out={out}"])
    stored = unsealed(folder / "run" / "calibration.json")["max_error_0.02"]
    assert json.loads(out.read_text())["selective"]["threshold"] == pytest.approx(stored, rel=1e-6)


def test_thresholds_from_new_data_say_it_too(folder, evaluated):
    arguments = (f"--workdir={folder}/run", f"--features={folder}/new.npz")
    asked = ("--allow_new", "--max_error=0.05")
    half = folder / "half.json"
    run(
        "evaluate",
        [*arguments, *asked, "--recalibrate=half", f"--calibration_out={half}", "--coverages=0.8"],
    )
    run(
        "predict",
        [*arguments, *CHOSEN, f"--thresholds={half}", f"--out={folder}/half.jsonl"],
        [*arguments, "--max_error=0.05", f"--thresholds={half}", f"--out={folder}/half.jsonl"],
    )
    out = folder / "given.json"
    run("evaluate", [*arguments, *asked, f"--thresholds={half}", f"--out={out}"])
    assert list(json.loads(out.read_text())["none_of_these"]["coverages"]) == ["0.8"]


def test_a_run_without_its_data_says_it_and_mistakes_are_told(folder, predicted):
    moved = folder / "moved"
    shutil.copytree(folder / "run", moved)
    (folder / "rows.npz").rename(folder / "elsewhere.npz")
    arguments = (f"--workdir={moved}", f"--features={folder}/new.npz")
    out = f"--out={folder}/moved.jsonl"
    run("predict", [*arguments, *CHOSEN, "--new_score=mahalanobis", out])
    assert lines(folder / "moved.jsonl") == predicted["mahalanobis"]
    known = moved / "known_features.npz"
    known.write_bytes(known.read_bytes()[:1000])
    damaged = ([*arguments, *CHOSEN, "--new_score=neighbors", out], "known_features.npz")
    check_mistakes("train.predict", [damaged], ENVIRONMENT)
    (folder / "elsewhere.npz").rename(folder / "rows.npz")
    of_logits = ("--coverage=0.999", "--allow_new", "--new_score=logit")
    refused = {of_logits: "0.999", ("--max_error=0.001",): "--max_error"}
    ended = start_each("train.predict", [[*arguments, *asked] for asked in refused], ENVIRONMENT)
    for one, named in zip(ended, refused.values(), strict=True):
        assert (one.returncode, one.stdout) == (2, "")
        assert named in one.stderr


def test_the_whole_is_wrong_as_rarely_as_promised():
    """Over repetitions of a law with many rare classes, of which some come for the first time.

    The classes of sets are right exactly as often as half of the error asks.
    """
    coverage, number, repetitions, tests = 0.8, 150, 300, 40
    law = 1 / np.arange(1, 400)
    law /= law.sum()
    random = np.random.default_rng(0)
    wrong = []
    for _ in range(repetitions):
        labels = random.choice(len(law), number + tests, p=law)
        # Rare classes are somewhat more unusual.
        outliers = (random.normal(size=len(labels)) + labels / 100).astype(np.float32)
        limits = new_classes.limits(outliers[:number], labels[:number], coverage)
        assert limits.new_from < np.inf
        hits = random.random(tests) < new_classes.coverage_of_classes(coverage)
        found, says_new = limits.apply(hits[:, None], outliers[number:])
        is_new = ~np.isin(labels[number:], labels[:number])
        wrong.append(np.where(is_new, ~np.asarray(says_new), ~np.asarray(found)[:, 0]).mean())
    error = np.std(wrong) / math.sqrt(repetitions)
    assert np.mean(wrong) <= 1 - coverage + 2 * error
    # Nearly all of the error is used: the bound is not met by saying it always.
    assert np.mean(wrong) >= (1 - coverage) / 2
