"""`train.export --format=onnx`: a file for ONNX Runtime, checked before it is kept."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import onnx
import pytest
from PIL import Image

from tests.parts.program.forked import TIME_LIMIT, start, start_each
from tests.parts.program.prediction import fitted_rules
from train.classifiers import fitted, onnx_runtime, program, trained
from train.data.examples import Examples
from train.foundation import files
from train.foundation.errors import UserError
from train.prediction import exported_program, standalone
from train.prediction.onnx import checking, exporting, precision
from train.reports import rules

RULES = ("top_k=3", "coverage=0.9", "average_k=2.5")
# Run far from the repository, and without JAX.
LOAD = """
import sys
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
assert [one.name for one in session.get_inputs()] == ["images"]
assert [one.name for one in session.get_outputs()] == ["probabilities", "chosen"]
inputs = np.load(sys.argv[2])
for number in (1, 2, 33):
    probabilities, chosen = session.run(None, {"images": inputs[:number]})
    assert probabilities.shape == chosen.shape == (number, 10)
np.savez(sys.argv[3], probabilities=probabilities, chosen=chosen)
for output in ("probabilities", "chosen"):
    try:
        session.run([output], {"images": inputs[:0]})
    except Exception as error:
        assert "at_least_one_example" in str(error) and "\\n" not in str(error)
    else:
        raise AssertionError("an empty batch is not refused")
assert "jax" not in sys.modules
"""


@pytest.fixture(scope="module")
def workdir(finished_run, tmp_path_factory):
    return shutil.copytree(finished_run, tmp_path_factory.mktemp("onnx") / "run")


@pytest.fixture(scope="module")
def exported(workdir):
    """The command with each rule, and one with weights of 16 bits."""
    folder = workdir.parent
    calls = [
        (f"--workdir={workdir}", "--format=onnx", f"--out={folder}/{rule}.onnx", f"--{rule}")
        for rule in RULES
    ]
    calls.append((*calls[1][:2], f"--out={folder}/half.onnx", calls[1][3], "--float16"))
    ended = start_each("train.export", calls, {})
    for done in ended:
        assert (done.returncode, done.stderr) == (0, "")
    return folder, ended


def images(number=33):
    return np.random.default_rng(number).integers(0, 256, (number, 8, 8, 1), np.uint8)


def test_it_needs_onnx_runtime_alone(exported, workdir, tmp_path):
    folder, ended = exported
    np.save(tmp_path / "images.npy", images())
    for rule in RULES:
        subprocess.run(
            [sys.executable, "-c", LOAD, f"{folder}/{rule}.onnx", "images.npy", "found.npz"],
            cwd=tmp_path,
            check=True,
            timeout=TIME_LIMIT,
        )
        found = np.load(tmp_path / "found.npz")
        classifier = trained.load(workdir)
        kept = fitted.find(classifier, rules.parse(rule))
        expected = jax.jit(exported_program.make(classifier, kept))(images())
        # Both in float32, with sums in other orders.
        np.testing.assert_allclose(found["probabilities"], expected[0], rtol=0, atol=1e-5)
        np.testing.assert_array_equal(found["chosen"], expected[1])
    for done in ended:
        assert "64 test images: probabilities differ by at most" in done.stdout
        assert "all sets are the same" in done.stdout


def test_the_script_beside_it_prepares_image_files(exported, tmp_path):
    folder, ended = exported
    file = folder / "top_k=3.onnx"
    assert f"python {file}.py photo.jpg" in ended[0].stdout
    Image.fromarray(images(1)[0, :, :, 0]).save(tmp_path / "digit.png")
    ran = subprocess.run(
        [sys.executable, f"{file}.py", "gone.png", "digit.png"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT,
    )
    assert (ran.returncode, ran.stderr) == (1, "")
    gone, found = map(json.loads, ran.stdout.splitlines())
    assert gone == {"path": "gone.png", "error": "No such file or directory"}
    assert found["path"] == "digit.png"
    probabilities, chosen = onnx_runtime.load(file.read_bytes())(images(1))
    members = {member["class"]: member["probability"] for member in found["set"]}
    assert members == {
        str(index): pytest.approx(probabilities[0, index], abs=1e-6)
        for index in np.flatnonzero(chosen[0])
    }


def test_the_file_says_what_it_is(exported):
    folder, _ = exported
    described = files.read_checked(folder / "coverage=0.9.onnx.json", "a file")
    model = onnx.load(folder / "coverage=0.9.onnx")
    onnx.checker.check_model(model, full_check=True)
    said = {one.key: json.loads(one.value) for one in model.metadata_props}
    digest = hashlib.sha256((folder / "coverage=0.9.onnx").read_bytes()).hexdigest()
    assert {**said, "script": "coverage=0.9.onnx.py", "digest": digest} == described
    assert said["classes"] == [str(digit) for digit in range(10)]
    assert said["rule"]["rule"] == "coverage=0.9"
    assert said["rule"]["promised"] == 0.9
    assert "in greyscale, resized to just cover 8 x 8" in said["images"]["preparation"]
    assert said["onnx"] == {"opset": 18, "weights": "float32"}
    (batch, *sizes) = model.graph.input[0].type.tensor_type.shape.dim
    assert (batch.dim_param, [size.dim_value for size in sizes]) == ("n", [8, 8, 1])


def test_weights_of_16_bits_have_limits_of_their_own(exported, workdir):
    folder, _ = exported
    half, whole = (
        json.loads((folder / f"{name}.onnx.json").read_text()) for name in ("half", "coverage=0.9")
    )
    assert half["onnx"]["weights"] == "float16"
    cards = [(folder / f"{name}.onnx.md").read_text() for name in ("half", "coverage=0.9")]
    assert all("trained with the loss" in card for card in cards)
    assert ["The file stores weights as float16" in card for card in cards] == [True, False]
    sizes = [(folder / f"{name}.onnx").stat().st_size for name in ("half", "coverage=0.9")]
    assert sizes[0] < 0.7 * sizes[1]
    classifier, rule = trained.load(workdir), rules.parse("coverage=0.9")
    adapted = precision.adapted(classifier, half=True, has_calibration=False)
    of_half, of_whole = (one["rule"]["limits"] for one in (half, whole))
    assert fitted.find(adapted, rule).to_json()["limits"] == of_half
    # The run keeps its own.
    assert fitted.find(classifier, rule).to_json()["limits"] == of_whole != of_half
    with pytest.raises(UserError, match="--calibration has limits for the run's own numbers"):
        precision.adapted(classifier, half=True, has_calibration=True)


@pytest.mark.parametrize("name", ["taxonomic", "class_conditional"])
def test_further_rules(workdir, name, tmp_path):
    """The class conditional one has limits that are infinite."""
    table = tmp_path / "ranks.csv"
    rows = [f"{digit},{'low' if digit < 5 else 'high'}" for digit in range(10)]
    table.write_text("\n".join(["label,half", *rows]))
    classifier = trained.load(workdir, taxonomy=str(table))
    text = f"coverage=0.9, rule={name}, new_score=either"
    rule = fitted.find(classifier, rules.parse(text))
    description = exporting.describe(classifier, rule, half=False)
    content = exporting.serialize(classifier, rule, description, half=False)
    checked = checking.check(classifier, rule, content)
    assert checked.number == 64
    assert checked.difference < checking.BOUND


def test_a_file_that_differs_is_refused(workdir):
    classifier = trained.load(workdir)
    rule = fitted_rules.of("average_k=2.5", 0.01, classes=classifier.classes)
    description = exporting.describe(classifier, rule, half=False)
    other = fitted_rules.of("average_k=2.5", 0.3, classes=classifier.classes)
    content = exporting.serialize(classifier, other, description, half=False)
    with pytest.raises(UserError, match=r"of 15 sets differ from those in JAX on 64 test images"):
        checking.check(classifier, rule, content)
    rounded = precision.adapted(classifier, half=True, has_calibration=False)
    content = exporting.serialize(rounded, rule, description, half=True)
    with pytest.raises(UserError, match="a probability in ONNX Runtime differs by"):
        checking.check(classifier, rule, content)
    with pytest.raises(UserError, match="ONNX Runtime refuses the file"):
        checking.check(classifier, rule, content[:-100])


def test_of_two_equal_sets_either_is_right():
    probabilities = np.array([[0.4, 0.4, 0.2], [0.4, 0.4, 0.2], [0.4, 0.4, 0.2], [0.5, 0.4, 0.1]])
    rule = fitted_rules.of("top_k=1", classes=3)
    # The likeliest class, the other that is as likely, a less likely one, and so for the last.
    answers = [np.eye(3, dtype=bool)[[0, 1, 2, 1]]]
    wrong = checking.not_at_limit(rule, probabilities.astype(np.float32), answers)
    assert wrong.tolist() == [False, False, True, True]


def examples_of(pixels):
    labels = np.arange(len(pixels)) % 10
    return Examples.of_source(pixels, labels, [str(digit) for digit in range(10)], "here")


def test_it_is_a_classifier_like_its_run(exported, workdir):
    folder, _ = exported
    found = program.read(folder / "coverage=0.9.onnx").load()
    run = trained.load(workdir)
    of_program, of_run = (one.score(examples_of(images())) for one in (found, run))
    np.testing.assert_allclose(of_program.values, of_run.values, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(of_program.ranks, of_run.ranks)
    assert of_program.classes == of_run.classes
    np.testing.assert_allclose(jax.jit(found.scores())(images()), of_program.values, atol=1e-6)
    assert found.own_rule.rule.promise.coverage == 0.9


def test_evaluate_takes_it(exported, tmp_path):
    folder, _ = exported
    for digit in range(3):
        (tmp_path / "images" / str(digit)).mkdir(parents=True)
        for number, pixels in enumerate(images(4)):
            path = tmp_path / "images" / str(digit) / f"{number}.png"
            Image.fromarray(pixels[:, :, 0]).save(path)
    done = start(
        "train.evaluate",
        f"--weights={folder}/top_k=3.onnx",
        f"--images={tmp_path}/images",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "top_k=3" in done.stdout


def describe_as(other, path):
    """Describes a file as another one is described."""
    described = files.read_checked(Path(f"{other}.json"), "a file")
    described["digest"] = hashlib.sha256(path.read_bytes()).hexdigest()
    Path(f"{path}.json").write_text(json.dumps(described))


def test_the_description_of_another_export_is_refused(exported, tmp_path):
    folder, _ = exported
    path = tmp_path / "half_written.onnx"
    shutil.copy(folder / "top_k=3.onnx", path)
    shutil.copy(folder / "top_k=3.onnx.json", f"{path}.json")
    program.read(path)
    shutil.copy(folder / "coverage=0.9.onnx.json", f"{path}.json")
    message = r"half_written\.onnx is not the file that .*half_written\.onnx\.json describes: one"
    with pytest.raises(UserError, match=message):
        program.read(path)
    with pytest.raises(ValueError, match="is not the file that the description describes"):
        standalone.load(path, json.loads(Path(f"{path}.json").read_text()))


def test_a_file_that_reads_other_files_is_refused(exported, tmp_path):
    folder, _ = exported
    model = onnx.load(folder / "top_k=3.onnx")
    (tmp_path / "other").write_bytes(model.graph.initializer[0].raw_data)
    array = model.graph.initializer[0]
    array.ClearField("raw_data")
    array.data_location = onnx.TensorProto.EXTERNAL
    array.external_data.add(key="location", value="other")
    path = tmp_path / "program.onnx"
    path.write_bytes(model.SerializeToString())
    describe_as(folder / "top_k=3.onnx", path)
    with pytest.raises(UserError, match="it names other files that its numbers are in"):
        program.read(path).load()
