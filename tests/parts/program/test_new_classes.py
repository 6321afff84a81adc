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
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images

from tests.parts.program.forked import check_mistakes, start_each
from tests.parts.program.sealed import unsealed
from train.evaluation import new_classes, outlier_scores
from train.prediction.html_page import page_files

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
    """A run whose test has classes that it does not know, and new rows of all classes."""
    folder = tmp_path_factory.mktemp("new_classes")
    digits = load_digits()
    features, labels = digits.data.astype(np.float32), digits.target
    places = np.arange(len(labels))
    split = np.where(places % 3 == 0, "train", np.where(places % 3 == 1, "val", "test"))
    kept = (labels < KNOWN) | (split == "test")
    arrays = {"features": features, "labels": labels, "split": split}
    np.savez(folder / "rows.npz", **{name: array[kept] for name, array in arrays.items()})
    is_new = split == "test"
    np.savez(folder / "new.npz", features=features[is_new], labels=labels[is_new])
    run(
        "main",
        [
            *("--config=configs/features.py", "--config.model.name=mlp"),
            *(f"--config.dataset.path={folder}/rows.npz", f"--workdir={folder}/run"),
            "--config.dataset.unseen_classes=count_as_unknown",
        ],
    )
    return folder


@pytest.fixture(scope="module")
def evaluated(folder):
    """The reports of the test split and of the same rows as new data, by every score."""
    workdir = f"--workdir={folder}/run"
    (test, *_) = run(
        "evaluate",
        [workdir, "--allow_new", "--new_score=probability", "--max_error=0.02"],
        [workdir, "--split=validation", f"--scores={folder}/validation.npz"],
    )
    run(
        "evaluate",
        *(
            [
                *(workdir, f"--features={folder}/new.npz", f"--out={folder}/{score}.json"),
                *("--allow_new", f"--new_score={score}", "--max_error=0.02", "--rules=aps"),
            ]
            for score in SCORES
        ),
    )
    reports = {score: json.loads((folder / f"{score}.json").read_text()) for score in SCORES}
    return json.loads((folder / "run" / "evaluation_test.json").read_text()), reports, test.stdout


@pytest.fixture(scope="module")
def predicted(folder, evaluated):
    """The lines of the same rows, by every score."""
    arguments = (f"--workdir={folder}/run", f"--features={folder}/new.npz", *CHOSEN)
    run(
        "predict",
        *(
            [
                *(*arguments, f"--new_score={score}", f"--out={folder}/{score}.jsonl"),
                f"--html={folder}/{score}.html",
            ]
            for score in SCORES
        ),
    )
    return {score: lines(folder / f"{score}.jsonl") for score in SCORES}


def test_limits_are_quantiles_of_the_validation_examples(folder, evaluated):
    with np.load(folder / "validation.npz") as found:
        highest = found["scores"].max(axis=1)
    number = len(highest)
    stored = unsealed(folder / "run" / "calibration.json")
    known_to, new_from = stored[f"new_probability_{COVERAGE}"]
    rank = math.ceil((number + 1) * (1 - (1 - COVERAGE) / 4))
    # 1 less a probability near 1 is computed without cancellation; the scores of both are float32.
    assert known_to == pytest.approx(np.sort(1 - highest)[rank - 1], rel=1e-4)
    # No class has a single validation example.
    assert new_from is None


def test_reports_count_what_lines_say(folder, evaluated, predicted):
    with np.load(folder / "new.npz") as found:
        labels = found["labels"]
    is_new = labels >= KNOWN
    _, reports, _ = evaluated
    for score, found in predicted.items():
        says_new = np.array([line["none_of_these"] for line in found])
        sizes = np.array([line["size"] for line in found])
        members = [{one["index"] for one in line["set"]} for line in found]
        hits = np.array([label in one for label, one in zip(labels, members, strict=True)])
        assert not hits[is_new].any()
        assert (sizes[says_new] == 0).all()
        assert says_new[sizes == 0].all()
        report = reports[score]["none_of_these"]
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


def test_a_split_is_reported_as_new_data_are(evaluated):
    test, reports, shown = evaluated
    new = reports["probability"]["none_of_these"]
    assert test["none_of_these"]["auroc"] == pytest.approx(new["auroc"], abs=1e-3)
    assert test["none_of_these"]["coverages"].keys() == new["coverages"].keys()
    assert "the outlier score probability has an AUROC of 0." in shown
    assert "lac with 'none of these', asked 0.8, got of known classes the label in" in shown
    assert test["selective"] == pytest.approx(reports["probability"]["selective"], abs=1e-2)
    assert "answers with an error of at most 0.02: " in shown


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
    (ended,) = run(
        "evaluate", [f"--program={path}", f"--features={folder}/new.npz", f"--out={out}"]
    )
    report = json.loads(out.read_text())["sets"]
    assert report["promised"] == COVERAGE
    detected = report["none_of_these"]["unknown"]["none_of_these"]
    assert detected == pytest.approx(none_of_these[labels >= KNOWN].mean(), abs=0.01)
    assert "with 'none of these': of known classes the label in" in ended.stdout


def test_a_page_says_none_of_these_without_a_class(folder, predicted):
    page = (folder / "energy.html").read_text()
    number = sum(line["none_of_these"] for line in predicted["energy"][: page_files.CARDS])
    assert page.count('<span class="name">none of these</span></p><p class="empty">It is') == number
    assert "No class reaches the threshold" not in page
    assert "“None of these” here" in page
    assert "A set may have &#39;none of these&#39;." in page


def test_a_photograph_is_none_of_the_digits_where_a_set_names_one_for_sure(tmp_path):
    """A temple and a flower, read as a network of digits reads images of digits.

    They are far from the digits below the head, and their logits look like those of a digit: the
    default score notices the first.
    """
    workdir = f"--workdir={tmp_path}/run"
    (tmp_path / "photos").mkdir()
    for place, pixels in enumerate(load_sample_images().images):
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{place}.png")
    run(
        "main",
        [
            *("--config=configs/digits.py:cross_entropy", "--config.num_epochs=15", workdir),
            f"--config.dataset.data_dir={tmp_path}/data",
        ],
    )
    arguments = (workdir, f"--images={tmp_path}/photos")
    run(
        "predict",
        [*arguments, "--top_k=1", f"--out={tmp_path}/plain.jsonl"],
        [
            *(*arguments, "--coverage=0.9", "--allow_new"),
            f"--out={tmp_path}/new.jsonl",
        ],
    )
    plain, new = lines(tmp_path / "plain.jsonl"), lines(tmp_path / "new.jsonl")
    assert max(line["set"][0]["probability"] for line in plain) > 0.8
    assert [(line["set"], line["none_of_these"]) for line in new] == [([], True)] * 2


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
    report = evaluated[1]["energy"]["selective"]
    one = 1.5 / known.sum()
    assert report["answered"] == pytest.approx(answered[known].mean(), abs=one)
    assert report["error_of_answers"] == pytest.approx(wrong[known & answered].mean(), abs=one)
    # Fewer answers for digits that are not known; nothing promises it.
    assert answered[~known].mean() < answered[known].mean()
    assert "An answer is the class of highest probability" in (folder / "sure.html").read_text()
    # The same threshold from scores without a model.
    out = folder / "logits.json"
    scores = f"{folder}/validation.npz"
    run("evaluate", [f"--logits={scores}", "--max_error=0.02", f"--out={out}"])
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
    check_mistakes(
        "train.predict",
        [
            ([*arguments, *CHOSEN, "--new_score=neighbors", out], "known_features.npz cannot be"),
            (
                [*arguments, "--coverage=0.99", "--allow_new", "--new_score=logit", out],
                "rows.npz",
            ),
        ],
        ENVIRONMENT,
    )
    (folder / "elsewhere.npz").rename(folder / "rows.npz")
    refused = {
        ("--coverage=0.999", "--allow_new", "--new_score=logit"): "'none of these' with a coverage "
        "of 0.999 needs at least 4 / 0.001 - 1 = 3999 examples to calibrate on; there are ",
        ("--max_error=0.001",): "--max_error=0.001 cannot be promised: the ",
    }
    ended = start_each("train.predict", [[*arguments, *asked] for asked in refused], ENVIRONMENT)
    for one, message in zip(ended, refused.values(), strict=True):
        assert (one.returncode, one.stdout) == (2, "")
        # Before it there is a warning of the classes of the test that are not known.
        assert f"error: {message}" in one.stderr.splitlines()[-1]


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
