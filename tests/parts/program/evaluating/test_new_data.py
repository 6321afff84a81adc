"""`train.evaluate` on new labelled images, with limits of the run and with limits of their own."""

import csv
import json
import shutil

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests import reference
from tests.parts.program.forked import check_mistakes, start_each

DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
NUMBER = 240
UNKNOWN = "ten <b>"
NAME = f"{UNKNOWN}/a<script>\n,.png"


def run(module, *starts):
    ended = start_each(f"train.{module}", starts, DEVICES)
    for one in ended:
        assert one.returncode == 0, one
    return ended


def arrays(path):
    with np.load(path) as written:
        return dict(written)


@pytest.fixture(scope="module")
def folder(finished_run, tmp_path_factory):
    """A run; new images, shifted, one broken, one of an unknown class; a table of plants."""
    folder = tmp_path_factory.mktemp("new")
    shutil.copytree(finished_run, folder / "run")
    digits, images = load_digits(), folder / "shifted"
    for index in range(NUMBER):
        pixels = np.roll(digits.images[index] * 15, (2, 2), (0, 1)).astype(np.uint8)
        file = images / str(digits.target[index]) / f"{index}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    (images / "3" / "broken.png").write_text("no image")
    (images / UNKNOWN).mkdir()
    Image.new("L", (8, 8)).save(images / NAME)
    with (folder / "table.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "label", "group"])
        for row, image in enumerate(sorted(images.glob("[0-9]/[0-9]*.png"))):
            table.writerow([image.relative_to(folder), image.parent.name, f"plant {row // 3}"])
    return folder


@pytest.fixture(scope="module")
def evaluated(folder):
    """The report of the images, and what the command said."""
    given = [f"--workdir={folder}/run", f"--images={folder}/shifted"]
    (ended,) = run(
        "evaluate", [*given, f"--examples={folder}/e.html", f"--out={folder}/shifted.npz"]
    )
    return json.loads((folder / "run" / "evaluation_of_shifted.json").read_text()), ended


def test_limits_are_those_that_the_run_keeps(folder, evaluated):
    report, _ = evaluated
    kept = json.loads((folder / "run" / "sets.json").read_text())["rules"]
    assert report["examples"] == NUMBER
    assert report["data"] == f"{folder}/shifted"
    for text in ("average_k=3", "coverage=0.8", "coverage=0.9", "coverage=0.95"):
        assert report["sets"][text]["limit"] == kept[text]["limits"]
    assert report["sets"]["coverage=0.9"]["contradicted"] is True


def test_unknown_classes_and_unreadable_images_are_counted_apart(evaluated):
    report, ended = evaluated
    assert report["unknown_classes"] == {"examples": 1, "classes": {UNKNOWN: 1}}
    assert report["sets"]["top_k=3"]["unknown"] == {"examples": 1, "set_size": 3}
    (unreadable,) = report["unreadable"]
    assert unreadable["path"] == "3/broken.png"
    assert UNKNOWN in ended.stdout
    assert "3/broken.png is not an image" in ended.stderr


def test_examples_are_on_a_page_and_in_tables(folder, evaluated):
    with (folder / "e.csv").open(encoding="utf-8", newline="") as file:
        by_name = {row["name"]: row for row in csv.DictReader(file)}
    written = arrays(folder / "shifted.npz")
    assert len(by_name) == NUMBER + 1
    for name, label, scores in zip(
        *(written[one].tolist() for one in ("names", "labels", "scores")), strict=True
    ):
        row = by_name[name]
        assert int(row["label"]) == label == int(name.partition("/")[0])
        assert float(row["probability"]) == pytest.approx(scores[label], rel=1e-6)
    assert (by_name[NAME]["label"], by_name[NAME]["in_set"]) == (UNKNOWN, "0")
    page = (folder / "e.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in page
    assert "a<script>" not in page
    with Image.open(folder / "e.confusions.png") as figure:
        assert figure.format == "PNG"


def test_half_of_them_gives_limits_for_every_command(folder, evaluated):
    table, limits = f"--images={folder}/table.csv", f"{folder}/half.json"
    workdir, asked = f"--workdir={folder}/run", ["--coverage=0.8", "--sets=risk=0.3, costs=missed"]
    kept = (folder / "run" / "sets.json").read_bytes()
    half = [workdir, table, "--calibration=half", *asked]
    run("evaluate", [*half, f"--calibration_out={limits}", f"--out={folder}/rest.npz"])
    assert (folder / "run" / "sets.json").read_bytes() == kept
    report = json.loads((folder / "run" / "evaluation_of_table.csv_recalibrated.json").read_text())
    everything, rest = arrays(folder / "shifted.npz"), arrays(folder / "rest.npz")
    # Tables have the paths from their own folder. A plant is in one half.
    names = [name.removeprefix("shifted/") for name in rest["names"].tolist()]
    others = ~np.isin(everything["names"], names)
    plants = {name: row // 3 for row, name in enumerate(sorted(everything["names"].tolist()))}
    of_rest, of_others = (
        {plants[name] for name in some} for some in (names, everything["names"][others].tolist())
    )
    assert len(of_rest) == len(of_others) == NUMBER / 6
    assert not of_rest & of_others
    row = report["sets"]["coverage=0.8"]
    expected = reference.conformal_threshold(
        everything["scores"][others], everything["labels"][others], error=0.2
    )
    assert (row["limit"], row["contradicted"]) == (expected, False)
    assert report["calibrated_on"]["examples"] == report["examples"] == NUMBER / 2
    observed = report["observations"]
    assert observed["examples"] + observed["num_of_several_classes"] == NUMBER / 6
    run(
        "evaluate",
        [workdir, table, f"--calibration={limits}", f"--out={folder}/again.json"],
        [workdir, table, f"--calibration={limits}", *asked, f"--out={folder}/asked.json"],
    )
    for name in ("again", "asked"):
        again = json.loads((folder / f"{name}.json").read_text())
        for text in ("coverage=0.8", "risk=0.3, costs=missed"):
            assert again["sets"][text]["limit"] == report["sets"][text]["limit"]
            of_plants = again["observations"]["sets"][text]
            assert of_plants["limit"] == observed["sets"][text]["limit"]
    given = f"--calibration={limits}"
    images = f"--images={folder}/shifted/0"
    (lines,) = run("predict", [workdir, images, "--coverage=0.8", given])
    sets = [json.loads(line) for line in lines.stdout.splitlines()]
    of_name = dict(zip(everything["names"].tolist(), everything["scores"], strict=True))
    for line in sets:
        scores = of_name["0/" + line["path"].rpartition("/")[2]]
        assert line["size"] == (scores >= np.float32(expected)).sum()
    run("export", [workdir, f"--out={folder}/program", "--coverage=0.8", given])
    described = json.loads((folder / "program.json").read_text())["rule"]
    assert described["limits"] == expected
    assert described["calibrated_on"]["examples"] == NUMBER / 2


def test_mistakes_are_one_line(folder, tmp_path):
    for name in ("1/1.png", "2/2.png"):
        (tmp_path / "few" / name).parent.mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / "few" / name)
    (tmp_path / "c.json").write_text('{"parameters": "x", "classes": "y", "rules": {}}')
    given = [f"--workdir={folder}/run", f"--images={tmp_path}/few"]
    mistakes = [
        ([*given, "--calibration=half", "--coverage=0.8"], "coverage=0.8"),
        ([*given, f"--calibration={tmp_path}/c.json"], "c.json"),
    ]
    check_mistakes("train.evaluate", mistakes, DEVICES)
