"""`train.export`: a program that needs nothing of ours, and answers like the classifier."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
from PIL import ExifTags, Image

from tests.parts.program.forked import TIME_LIMIT, start
from train.classifiers import program, trained
from train.foundation import files
from train.foundation.errors import UserError

RULE = "coverage=0.9"
# Runs the script, which needs nothing that is installed only for us.
RUN = """
import runpy, sys
del sys.argv[0]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as ended:
    assert not ended.code
ours = {"flax", "train", "topk_jax", "configs", "orbax", "absl", "ml_collections"}
assert not ours & {name.split(".")[0] for name in sys.modules}
"""


@pytest.fixture(scope="module")
def workdir(finished_run, tmp_path_factory):
    return shutil.copytree(finished_run, tmp_path_factory.mktemp("export") / "run")


@pytest.fixture(scope="module")
def exported(workdir):
    """A program of the command, and what was printed."""
    path = workdir.with_name("program")
    arguments = (f"--workdir={workdir}", f"--out={path}", f"--{RULE}")
    done = start("train.export", *arguments, environment={})
    assert (done.returncode, done.stderr) == (0, "")
    return path, done.stdout


def test_checkpoints_of_another_copy_than_the_results_are_refused(workdir, tmp_path):
    copy = shutil.copytree(workdir, tmp_path / "run")
    results = json.loads((copy / "results.json").read_text())
    (copy / "results.json").write_text(json.dumps({**results, "best_step": 9}))
    with pytest.raises(UserError, match="checkpoints/9 is damaged"):
        trained.load(copy)


def test_the_script_beside_it_says_what_the_program_says(exported, tmp_path):
    path, printed = exported
    script = path.with_name("program.py")
    assert files.read_checked(path.with_name("program.json"), "a file")["script"] == script.name
    assert f"python {script} photo.jpg" in printed
    # Of other sizes than the digits, in colour, and rotated by the camera.
    flower = Image.open(Path(sklearn.datasets.__file__).parent / "images" / "flower.jpg")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    flower.save(tmp_path / "flower.jpg", exif=exif)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "digit.png")
    paths = [tmp_path / "flower.jpg", tmp_path / "digit.png"]
    ran = subprocess.run(
        [sys.executable, "-c", RUN, script, *paths],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )
    classifier = program.read(path).load()
    for line, file in zip(ran.stdout.splitlines(), paths, strict=True):
        found = json.loads(line)
        assert found["path"] == str(file)
        pixels = classifier.reader.for_evaluation(file.read_bytes(), file.name)
        probabilities, chosen = (np.asarray(one)[0] for one in classifier.call(pixels[None]))
        order = [index for index in np.argsort(-probabilities, kind="stable") if chosen[index]]
        assert [member["class"] for member in found["set"]] == [*map(str, order)]
        assert [member["probability"] for member in found["set"]] == probabilities[order].tolist()
