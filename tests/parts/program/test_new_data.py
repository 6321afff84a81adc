"""`train.evaluate` on new labelled data: of a run, of its features, and of an exported program."""

import csv
import hashlib
import json
import math
import shutil
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests import reference
from tests.parts.program.forked import check_mistakes, start_each
from tests.parts.program.sealed import unsealed
from topk_jax import metrics

ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
NUMBER = 240
UNKNOWN = "ten <b>"


def run(module, *starts):
    ended = start_each(f"train.{module}", starts, ENVIRONMENT)
    for one in ended:
        assert one.returncode == 0, one
    return ended


def digests(folder):
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


def write_digits(folder, shift=0):
    """Digits in a folder for each class; moved, they are images of another kind."""
    digits = load_digits()
    for index in range(NUMBER):
        pixels = np.roll(digits.images[index] * 15, (shift, shift), (0, 1)).astype(np.uint8)
        file = folder / str(digits.target[index]) / f"{index}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)


@pytest.fixture(scope="module")
def folder(finished_run, tmp_path_factory):
    """A run, new images like its own, and others: shifted, broken, and of an unknown class."""
    folder = tmp_path_factory.mktemp("new")
    shutil.copytree(finished_run, folder / "run")
    write_digits(folder / "same")
    write_digits(folder / "shifted", 2)
    (folder / "shifted" / "3" / "broken.png").write_text("no image")
    (folder / "shifted" / UNKNOWN).mkdir()
    Image.new("L", (8, 8)).save(folder / "shifted" / UNKNOWN / "a<script>\n,.png")
    images = sorted((folder / "shifted").glob("[0-9]/[0-9]*.png"))
    with (folder / "table.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "label", "group"])
        for row, image in enumerate(images):
            path = image.relative_to(folder)
            table.writerow([path, path.parent.name, f"plant {row // 3}"])
    return folder


@pytest.fixture(scope="module")
def evaluated(folder):
    """The reports of the same images, and of the shifted ones."""
    workdir = f"--workdir={folder}/run"
    # Its thresholds are computed, and are then those of the run.
    run("evaluate", [workdir, f"--images={folder}/same", f"--scores_out={folder}/same.npz"])
    before = digests(folder / "run")
    (shown,) = run(
        "evaluate",
        [
            *(workdir, f"--images={folder}/shifted", f"--scores_out={folder}/shifted.npz"),
            *(f"--examples={folder}/errors.html", "--rules=aps,interpolated"),
        ],
    )
    after = digests(folder / "run")
    assert after.pop("evaluation_of_shifted.json")
    # The limits of further rules are kept beside the thresholds, which stay as they are.
    kept = unsealed(folder / "run" / "calibration.json")
    assert {"coverage_0.9", "average_3.0"} <= kept.keys()
    del before["calibration.json"], after["calibration.json"]
    assert after == before
    reports = {
        name: json.loads((folder / "run" / f"evaluation_of_{name}.json").read_text())
        for name in ("same", "shifted")
    }
    return reports, shown.stdout


def arrays(path):
    with np.load(path) as written:
        return dict(written)


def interval(hits, number):
    """The interval of Clopper and Pearson by bisection of its definition."""

    def tail(probability, numbers):
        return sum(
            math.comb(number, one) * probability**one * (1 - probability) ** (number - one)
            for one in numbers
        )

    def bisected(is_above):
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if is_above(middle) else (middle, high)
        return low

    return (
        bisected(lambda p: tail(p, range(hits, number + 1)) > 0.025) if hits else 0,
        bisected(lambda p: tail(p, range(hits + 1)) < 0.025) if hits < number else 1,
    )


def chance_of_so_few(hits, number, calibrated_on, coverage):
    """The chance that so few of new scores are up to the limit of old ones, if all are alike.

    Every order of the scores is as likely. The limit is an old score.
    """
    rank = math.ceil((calibrated_on + 1) * Fraction(str(coverage)))
    above = calibrated_on - rank
    ways = sum(
        math.comb(rank - 1 + below, below) * math.comb(above + number - below, above)
        for below in range(hits + 1)
    )
    return Fraction(ways, math.comb(calibrated_on + number, number))


@pytest.mark.parametrize("name", ["same", "shifted"])
def test_the_report_is_what_the_scores_have(folder, evaluated, name):
    report, written = evaluated[0][name], arrays(folder / f"{name}.npz")
    kept = unsealed(folder / "run" / "calibration.json")
    scores, labels = written["scores"].astype(np.float64), written["labels"]
    assert report["num_examples"] == len(labels) == NUMBER
    assert report["data"] == str(folder / name)
    for k in (1, 3, 5):
        hits = reference.top_k_hits(scores, labels, k=k)
        assert report["metrics"][f"top_{k}_accuracy"] == pytest.approx(hits.mean(), rel=1e-6)
        expected = interval(int(hits.sum()), NUMBER)
        # The ends are found to some twelve digits.
        assert report["intervals"][f"top_{k}_accuracy"] == pytest.approx(expected, abs=1e-9)
        assert report["thresholds"][f"average_{k}"] == kept[f"average_{k}.0"]
        sizes = (written["scores"] >= np.float32(kept[f"average_{k}.0"])).sum(axis=1)
        assert report["metrics"][f"average_{k}_set_size"] == pytest.approx(sizes.mean(), rel=1e-6)
    for coverage in ("0.8", "0.9", "0.95"):
        found = report["coverages"][coverage]["conformal"]
        assert found["threshold"] == kept[f"coverage_{coverage}"]
        chosen = written["scores"] >= np.float32(found["threshold"])
        hits = chosen[np.arange(NUMBER), labels]
        assert found["coverage"] == pytest.approx(hits.mean(), rel=1e-6)
        assert found["set_size"] == pytest.approx(chosen.sum(axis=1).mean(), rel=1e-6)
        assert found["coverage_interval"] == pytest.approx(
            interval(int(hits.sum()), NUMBER), abs=1e-9
        )
        chance = chance_of_so_few(int(hits.sum()), NUMBER, 270, float(coverage))
        assert found["contradicted"] is (chance < 0.05)


def test_unknown_classes_are_counted_apart_and_unreadable_images_listed(evaluated):
    reports, shown = evaluated
    assert reports["shifted"]["unknown_classes"] == {"num_examples": 1, "classes": {UNKNOWN: 1}}
    assert f"the classifier does not know, counted apart: 1, of {UNKNOWN}" in shown
    (unreadable,) = reports["shifted"]["unreadable"]
    assert unreadable["path"] == "3/broken.png"
    assert "is not an image" in unreadable["error"]
    assert "images left out as unreadable: 1 (3/broken.png); the report has all" in shown


def test_the_examples_are_on_a_page_and_in_tables(folder, evaluated):
    with (folder / "errors.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    written = arrays(folder / "shifted.npz")
    by_name = {row["name"]: row for row in rows}
    assert len(rows) == len(by_name) == NUMBER + 1
    for name, label, scores, loss in zip(
        *(written[one].tolist() for one in ("names", "labels", "scores", "loss")), strict=True
    ):
        row = by_name[name]
        assert int(row["label"]) == label == int(name.partition("/")[0])
        assert float(row["probability"]) == pytest.approx(scores[label], rel=1e-6)
        assert float(row["loss"]) == pytest.approx(loss, rel=1e-6)
        before = sum(one > scores[label] for one in scores)
        assert before <= int(row["rank"]) <= before + scores.count(scores[label]) - 1
    unknown = by_name[f"{UNKNOWN}/a<script>\n,.png"]
    assert (unknown["label"], unknown["rank"], unknown["in_set"]) == (UNKNOWN, "10", "0")
    page = (folder / "errors.html").read_text(encoding="utf-8")
    assert page.count("<script>") == 1
    assert "a&lt;script&gt;\\n,.png" in page
    assert "data:image/png;base64," in page
    assert "1 file could not be read" in page


def test_half_of_the_new_data_recalibrates_for_other_commands(folder, evaluated):
    thresholds = f"--thresholds={folder}/half.json"
    workdir, table = f"--workdir={folder}/run", f"--table={folder}/table.csv"
    kept = (folder / "run" / "calibration.json").read_bytes()
    (shown,) = run(
        "evaluate",
        [
            *(workdir, table, "--recalibrate=half", f"--calibration_out={folder}/half.json"),
            *(f"--scores_out={folder}/rest.npz", "--coverages=0.8", "--ks=2"),
        ],
    )
    assert (folder / "run" / "calibration.json").read_bytes() == kept
    report = unsealed(folder / "run" / "evaluation_of_table.csv_recalibrated.json")
    everything, rest = arrays(folder / "shifted.npz"), arrays(folder / "rest.npz")
    # Tables have the paths from their own folder.
    names = [name.removeprefix("shifted/") for name in rest["names"].tolist()]
    others = ~np.isin(everything["names"], names)
    assert report["num_examples"] == len(names) == NUMBER / 2
    assert report["num_groups"] == NUMBER / 6 == len(set(rest["groups"].tolist()))
    in_order = {name: row // 3 for row, name in enumerate(sorted(everything["names"].tolist()))}
    of_rest = {in_order[name] for name in names}
    assert not of_rest & {in_order[name] for name in everything["names"][others].tolist()}
    expected = reference.conformal_threshold(
        everything["scores"][others], everything["labels"][others], error=0.2
    )
    written = unsealed(folder / "half.json")
    assert written["thresholds"]["coverage_0.8"] == expected
    assert report["coverages"]["0.8"]["conformal"]["threshold"] == expected
    assert report["coverages"]["0.8"]["conformal"]["contradicted"] is False
    # Of 120 photographs, in threes.
    assert written["thresholds"]["calibrated_on"] == [120, 40]
    assert "the examples are in 40 groups, which the intervals" in shown.stdout
    # The observations of each half are made once, and warned of once.
    warnings = [line for line in shown.stderr.splitlines() if "have no label" in line]
    assert len(warnings) == len(set(warnings)) > 0
    observed = report["observations"]
    # Those of several classes are left out.
    assert observed["num_examples"] + observed["num_of_several_classes"] == 40
    sets = observed["coverages"]["0.8"]["conformal"]
    assert f"conformal sets of observations: {sets['in_words']}" in shown.stdout
    of_observations = "observations_log_probabilities_coverage_0.8"
    assert written["thresholds"][of_observations] == sets["threshold"]
    assert written["thresholds"]["observations_log_probabilities_most_combined"] == 3
    # Wider than for so many images that are drawn by themselves.
    found = report["coverages"]["0.8"]["conformal"]
    low, high = interval(round(found["coverage"] * 120), 120)
    numbers = np.unique(rest["groups"], return_inverse=True)[1]
    chosen = rest["scores"] >= np.float32(expected)
    hits = chosen[np.arange(120), rest["labels"]]
    by_clusters = metrics.cluster_interval(hits, numbers, num_groups=40)
    # In 32 bits.
    assert found["coverage_interval"] == pytest.approx([*map(float, by_clusters)], abs=1e-6)
    assert found["coverage_interval"] != pytest.approx([low, high], abs=1e-4)
    # The run has no groups.
    (plain,) = run("evaluate", [workdir, table, "--coverages=0.8", f"--out={folder}/again.json"])
    assert "nothing is reported of observations: the run has no validation examples" in plain.stderr
    again = f"--out={folder}/again.json"
    (told,) = run("evaluate", [workdir, table, thresholds, "--ks=2", again])
    again = unsealed(folder / "again.json")
    assert list(again["coverages"]) == ["0.8"]
    assert again["coverages"]["0.8"]["conformal"]["threshold"] == expected
    # The file has thresholds of observations, too.
    plants = np.array([in_order[name] for name in everything["names"].tolist()])
    logs, labels = np.log(everything["scores"].astype(np.float64)), everything["labels"]
    means = np.stack([logs[plants == plant].mean(axis=0) for plant in range(NUMBER // 3)])
    of_plants = np.exp(means) / np.exp(means).sum(axis=1, keepdims=True)
    same = [plant for plant in range(NUMBER // 3) if np.ptp(labels[plants == plant]) == 0]
    hits = [
        of_plants[plant, labels[plants == plant][0]] >= sets["threshold"] - 1e-6 for plant in same
    ]
    by_file = again["observations"]
    assert by_file["num_examples"] == len(same)
    assert by_file["num_of_several_classes"] == NUMBER // 3 - len(same)
    assert list(by_file["coverages"]) == ["0.8"]
    assert by_file["coverages"]["0.8"]["conformal"]["threshold"] == sets["threshold"]
    assert by_file["coverages"]["0.8"]["conformal"]["coverage"] == pytest.approx(np.mean(hits))
    assert by_file["thresholds"] == observed["thresholds"]
    assert by_file["num_calibration_examples"] == observed["num_calibration_examples"]
    assert by_file["coverages"]["0.8"]["conformal"]["contradicted"] is False
    assert "conformal sets of observations: asked 0.8" in told.stdout
    (lines,) = run("predict", [workdir, f"--images={folder}/same/0", "--coverage=0.8", thresholds])
    assert json.loads(lines.stdout.splitlines()[0])["threshold"] == expected
    out = f"--out={folder}/program"
    run("export", [workdir, out, "--coverage=0.8", thresholds])
    described = json.loads((folder / "program.json").read_text())
    assert described["threshold"] == expected
    assert f"from half of the images of {folder}/table.csv (120)" in described["rule_in_words"]
    run(
        "evaluate",
        [
            *(f"--program={folder}/program", f"--images={folder}/shifted"),
            *(f"--out={folder}/of_program.json", f"--scores_out={folder}/of_program.npz"),
        ],
    )
    found, of_program = unsealed(folder / "of_program.json"), arrays(folder / "of_program.npz")
    # The same operations in another program: some roundings differ.
    np.testing.assert_allclose(of_program["scores"], everything["scores"], rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(of_program["names"], everything["names"])
    chosen = of_program["scores"] >= np.float32(expected)
    hits = chosen[np.arange(NUMBER), of_program["labels"]]
    assert found["sets"]["coverage"] == pytest.approx(hits.mean(), rel=1e-6)
    assert found["sets"]["promised"] == 0.8
    assert described["calibrated_on"] == {"examples": 120, "groups": 40}
    assert found["sets"]["coverage_interval"] == pytest.approx(
        interval(int(hits.sum()), NUMBER), abs=1e-9
    )
    assert found["unknown_classes"]["classes"] == {UNKNOWN: 1}


def test_mistakes_with_new_data_are_one_line(folder, tmp_path):
    for name in ("few/1/1.png", "few/2/2.png", "birds/0/1.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / name)
    (folder / "run" / "evaluation_of_birds.json").write_text('{"data": "/elsewhere/birds"}')
    (tmp_path / "c.json").write_text(
        '{"parameters": "x", "calibrated_on": "y", "thresholds": {"coverage_0.9": 0.5}}'
    )
    workdir = f"--workdir={folder}/run"
    few = f"--images={tmp_path}/few"
    # Each class has 27 validation examples, and 12 in half of the new ones.
    every = ("--coverages=0.97", "--rules=class_conditional", f"--images={folder}/same")
    mistakes = [
        ([workdir, few, "--recalibrate=half"], "coverage of 0.8"),
        ([workdir, few, f"--thresholds={tmp_path}/c.json"], "c.json"),
        ([workdir, few, f"--out={tmp_path}/few/out.json"], "--images"),
        ([workdir, f"--images={tmp_path}/birds"], "/elsewhere/birds"),
        ([workdir, *every], "class_conditional"),
        ([workdir, *every, "--recalibrate=half"], "class_conditional"),
    ]
    check_mistakes("train.evaluate", mistakes, ENVIRONMENT)
    rule = [workdir, "--coverage=0.97", "--rule=class_conditional", f"--out={tmp_path}/program"]
    check_mistakes("train.export", [(rule, "class_conditional")], ENVIRONMENT)
    assert not (tmp_path / "program").exists()
