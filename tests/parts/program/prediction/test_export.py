"""`train.export`: a program that needs nothing of ours, and answers like the classifier."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import sklearn.datasets
from PIL import ExifTags, Image

from tests.parts.program.forked import TIME_LIMIT, start_each
from tests.parts.program.sealed import unsealed
from train.classifiers import fitted, program, trained
from train.foundation.errors import UserError
from train.prediction import exported_program
from train.reports import rules

BATCH_SIZES = (1, 2, 33)
RULES = ("top_k=3", "average_k=2.5", "coverage=0.9")
# Run far from the repository, and without what is installed only for the program.
LOAD = """
import pathlib, sys
import jax.export, numpy as np
for path in sys.argv[2:]:
    program = jax.export.deserialize(bytearray(pathlib.Path(path).read_bytes()))
    assert set(program.platforms) == {"cpu", "cuda", "tpu"}, program.platforms
    inputs = np.load(sys.argv[1])
    outputs = {}
    for name in inputs:
        probabilities, chosen = program.call(inputs[name])
        outputs["probabilities" + name], outputs["chosen" + name] = probabilities, chosen
    np.savez(path + ".npz", **outputs)
ours = {"flax", "train", "topk_jax", "configs", "orbax", "absl", "ml_collections"}
assert not ours & {name.split(".")[0] for name in sys.modules}
"""


@pytest.fixture(scope="module")
def workdir(finished_run, tmp_path_factory):
    return shutil.copytree(finished_run, tmp_path_factory.mktemp("export") / "run")


@pytest.fixture(scope="module")
def exported(workdir, tmp_path_factory):
    """The command with each rule, and the program's outputs beside each file."""
    folder = tmp_path_factory.mktemp("exported")
    ended = start_each(
        "train.export",
        [(f"--workdir={workdir}", f"--out={folder}/{rule}", f"--{rule}") for rule in RULES],
        {},
    )
    for done in ended:
        assert (done.returncode, done.stderr) == (0, "")
    np.savez(folder / "images.npz", **{str(n): images(n) for n in BATCH_SIZES})
    files = [str(folder / name) for name in ("images.npz", *RULES)]
    subprocess.run(
        [sys.executable, "-c", LOAD, *files],
        cwd=folder,
        check=True,
        timeout=TIME_LIMIT,
    )
    return folder, ended


def test_checkpoints_of_another_copy_than_the_results_are_refused(workdir, tmp_path):
    copy = shutil.copytree(workdir, tmp_path / "run")
    results = unsealed(copy / "results.json")
    (copy / "results.json").write_text(json.dumps({**results, "best_epoch": 9}))
    message = r"cannot be read: they are of a run that selected epoch ., and its results are of ep"
    with pytest.raises(UserError, match=message):
        trained.load(copy)


def images(number):
    return np.random.default_rng(number).integers(0, 256, (number, 8, 8, 1), np.uint8)


@pytest.mark.parametrize("rule", RULES)
def test_the_program_says_what_the_classifier_says(workdir, exported, rule):
    folder, _ = exported
    described = json.loads((folder / f"{rule}.json").read_text())
    classifier = trained.load(workdir)
    kept = fitted.fitted(classifier, rules.parse(rule))
    assert described["rule"] == json.loads(json.dumps(kept.to_json()))
    infer = jax.jit(exported_program.make(classifier, kept))
    found = np.load(folder / f"{rule}.npz")
    for number in BATCH_SIZES:
        probabilities, chosen = infer(images(number))
        # The same operations on the same machine: to the last bit.
        np.testing.assert_array_equal(found[f"probabilities{number}"], probabilities)
        np.testing.assert_array_equal(found[f"chosen{number}"], chosen)
        assert found[f"probabilities{number}"].dtype == np.float32
        assert found[f"chosen{number}"].dtype == np.bool_
    if rule == "top_k=3":
        assert (found["chosen33"].sum(axis=-1) == 3).all()


def test_the_script_beside_it_says_what_the_program_says(exported, tmp_path):
    folder, ended = exported
    rule = RULES[2]
    script = folder / f"{rule}.py"
    described = json.loads((folder / f"{rule}.json").read_text())
    assert described["script"] == script.name
    assert f"python {script} photo.jpg" in ended[2].stdout
    # Of other sizes than the digits, in colour, and rotated by the camera.
    flower = Image.open(Path(sklearn.datasets.__file__).parent / "images" / "flower.jpg")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    flower.save(tmp_path / "flower.jpg", exif=exif)
    Image.fromarray(images(1)[0, :, :, 0]).save(tmp_path / "digit.png")
    paths = [tmp_path / "flower.jpg", tmp_path / "digit.png"]
    ran = subprocess.run(
        [sys.executable, script, *paths],
        check=True,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )
    classifier = program.read(folder / rule).load()
    for line, path in zip(ran.stdout.splitlines(), paths, strict=True):
        found = json.loads(line)
        assert found["path"] == str(path)
        pixels = classifier.reader.for_evaluation(path.read_bytes(), path.name)
        probabilities, chosen = (np.asarray(one)[0] for one in classifier.call(pixels[None]))
        order = [index for index in np.argsort(-probabilities, kind="stable") if chosen[index]]
        assert [member["class"] for member in found["set"]] == [*map(str, order)]
        assert [member["probability"] for member in found["set"]] == probabilities[order].tolist()
