"""`train.predict` in processes of its own: sets of real images, a page, and every mistake."""

import json
import os
import shutil
import signal

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.parts.program.forked import TIME_LIMIT, Process, Start, start_each

ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
DIGITS = [0, 1, 2, 3, 4]
# After the last digit, in the order of the paths.
BROKEN = ["x <broken>.png", "y broken.jpg"]


@pytest.fixture(scope="module")
def workdir(finished_run, tmp_path_factory):
    return shutil.copytree(finished_run, tmp_path_factory.mktemp("predict") / "run")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for index in DIGITS:
        pixels = (load_digits().images[index] * 15).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    for name in BROKEN:
        (folder / name).write_text("no image")
    (folder / "notes.txt").write_text("passed over")
    (folder / "blank.txt").write_text("one\n\nthree\n")
    return folder


@pytest.fixture(scope="module")
def predicted(workdir, images, tmp_path_factory):
    """The command with each rule; it writes into the folder."""
    folder = tmp_path_factory.mktemp("out")
    (folder / "names.txt").write_text("\n".join(f"digit {i} <é>" for i in range(10)) + "\n")
    common = (f"--workdir={workdir}", f"--images={images}")
    few = ",".join(str(images / f"{index}.png") for index in (3, 1))
    (folder / "out.jsonl").write_text("of before\n")
    return folder, start_each(
        "train.predict",
        [
            (*common, "--top_k=3", f"--out={folder}/out.jsonl", f"--html={folder}/page.html"),
            (
                common[0],
                f"--images={few}",
                f"--images={images}/2.png",
                "--average_k=2.5",
                f"--class_names={folder}/names.txt",
            ),
            (common[0], f"--images={few}", "--coverage=0.9"),
        ],
        ENVIRONMENT,
    )


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_every_image_has_a_line_in_order_and_the_unreadable_ones_are_told(predicted, images):
    folder, (done, *_) = predicted
    assert done.returncode == 1
    assert done.stdout == f"sets  {folder}/out.jsonl\npage  {folder}/page.html\n"
    found = lines((folder / "out.jsonl").read_text())
    names = [*(f"{index}.png" for index in DIGITS), *BROKEN]
    assert [line["path"] for line in found] == [str(images / name) for name in names]
    for line in found[: len(DIGITS)]:
        assert (line["size"], line["threshold"], line["rule"]) == (3, None, "top_k=3")
        probabilities = [member["probability"] for member in line["set"]]
        assert len(probabilities) == 3
        assert probabilities == sorted(probabilities, reverse=True)
        assert all(member["class"] == str(member["index"]) for member in line["set"])
    # The run is short, but not that bad: three digits of ten have the right one for most.
    right = [index in [member["index"] for member in found[index]["set"]] for index in DIGITS]
    assert sum(right) >= 3
    errors = [f"{images / name} is not an image" for name in BROKEN]
    assert [line.get("error") for line in found[len(DIGITS) :]] == errors
    assert done.stderr.splitlines() == [*errors, "2 of 7 images could not be read"]


def test_the_page_has_the_same_sets(predicted):
    folder, _ = predicted
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert page.count('<li class="card" data-size="3"') == len(DIGITS)
    assert page.count("data:image/png;base64,") == len(DIGITS)
    assert "x &lt;broken&gt;.png is not an image" in page
    assert "<dd>noised_balanced</dd>" in page
    assert "Each set has the 3 classes of highest probability. Of the test images, " in page
    assert sorted(file.name for file in folder.iterdir()) == ["names.txt", "out.jsonl", "page.html"]


def test_thresholds_are_calibrated_and_names_replaced(predicted, images, workdir):
    _, (_, average, coverage) = predicted
    assert (average.returncode, average.stderr) == (0, "")
    kept = json.loads((workdir / "calibration.json").read_text())
    found = lines(average.stdout)
    assert [line["path"] for line in found] == [str(images / f"{i}.png") for i in (3, 1, 2)]
    for line in found:
        assert line["rule"] == "average_k=2.5"
        assert line["threshold"] == kept["average_2.5"]
        assert line["size"] == len(line["set"])
        assert all(m["class"] == f"digit {m['index']} <é>" for m in line["set"])
        assert all(m["probability"] >= line["threshold"] for m in line["set"])
    assert (coverage.returncode, coverage.stderr) == (0, "")
    assert {line["threshold"] for line in lines(coverage.stdout)} == {kept["coverage_0.9"]}


# The folder of the images stands for @, the run's for %.
MISTAKES = {
    "only text": ("--workdir=% --images=%/../texts --top_k=1", "there are none in"),
    "no run": ("--workdir=@ --images=@ --top_k=1", "holds no run"),
    "html": (
        "--workdir=% --images=@ --top_k=1 --html=@/x/y.html",
        "--html must be in an existing folder",
    ),
    "device": ("--workdir=% --images=@ --top_k=1 --out=/dev/null", "is a device or a pipe"),
    "out": ("--workdir=% --images=@ --top_k=1 --out=@/1.png", "must not be one of the images"),
    "names as out": (
        "--workdir=% --images=@ --top_k=1 --class_names=@/notes.txt --out=@/notes.txt",
        "--out must not be the file of --class_names",
    ),
    "system": (
        "--workdir=% --images=@ --top_k=1 --html=/proc/self/x.html",
        "--html must not be in /proc, a folder of the system; got /proc/self",
    ),
    "own": (
        "--workdir=% --images=@ --top_k=1 --out=%/metrics.jsonl",
        "--out must not replace metrics.jsonl of the run in ",
    ),
    "one file": ("--workdir=% --images=@ --top_k=1 --out=@/z --html=@/z", "must be two files"),
    "few names": (
        "--workdir=% --images=@ --top_k=1 --class_names=@/notes.txt",
        "--class_names must have a line for each of the 10 classes",
    ),
    "blank name": (
        "--workdir=% --images=@ --top_k=1 --class_names=@/blank.txt",
        "line 2 of",
    ),
    "no text": ("--workdir=% --images=@ --top_k=1 --class_names=@/1.png", "is not in UTF-8"),
}


def test_a_mistake_is_one_line_and_exit_code_two(workdir, images):
    before = {file: file.read_bytes() for file in images.iterdir()}
    (workdir.parent / "texts").mkdir()
    (workdir.parent / "texts" / "notes.txt").write_text("no image")
    starts = [
        [part.replace("@", str(images)).replace("%", str(workdir)) for part in text.split()]
        for text, _ in MISTAKES.values()
    ]
    *ended, helped = start_each("train.predict", [*starts, ["--help"]], ENVIRONMENT)
    assert helped.returncode == 0
    assert all(f"--{flag}: " in helped.stdout for flag in ("images", "top_k", "average_k"))
    for (name, (_, message)), done in zip(MISTAKES.items(), ended, strict=True):
        assert done.returncode == 2, (name, done.stderr)
        (line,) = done.stderr.splitlines()
        assert message in line, name
        assert done.stdout == "", name
    assert {file: file.read_bytes() for file in images.iterdir()} == before


def test_a_reader_that_has_had_enough_is_no_error(workdir, images, tmp_path):
    # More than a pipe holds, so that the writer is still at it.
    many = ",".join(700 * [str(images / "1.png")])
    start = Start(
        "train.predict",
        [f"--workdir={workdir}", f"--images={many}", "--top_k=10"],
        ENVIRONMENT,
    )
    read, written = os.pipe()
    with (tmp_path / "errors").open("w+") as errors, os.fdopen(read) as printed:
        process = Process(start, written, errors.fileno())
        os.close(written)
        assert json.loads(printed.readline())["size"] == 10
        printed.close()
        assert process.wait(TIME_LIMIT) == 128 + signal.SIGPIPE
        assert errors.read() == ""
