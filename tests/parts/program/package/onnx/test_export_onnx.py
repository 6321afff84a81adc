"""`train.export --format=onnx`: a file for ONNX Runtime, checked before it is kept."""

import dataclasses
import hashlib
import json
import shutil

import jax
import numpy as np
import onnx
import pytest

from tests.parts.program.forked import start_each
from tests.parts.program.prediction import fitted_rules
from train.classifiers import fitted, onnx_runtime, trained
from train.foundation import files
from train.foundation.errors import UserError
from train.package.onnx import checking, export
from train.reports import rules
from train.run.parts import assemble

RULE = "coverage=0.9"


@pytest.fixture(scope="module")
def workdir(finished_run, tmp_path_factory):
    return shutil.copytree(finished_run, tmp_path_factory.mktemp("onnx") / "run")


@pytest.fixture(scope="module")
def classifier(workdir):
    return trained.load(workdir)


@pytest.fixture(scope="module")
def folder(workdir):
    """A file with weights of 32 bits, and one with weights of 16."""
    flags = (f"--workdir={workdir}", "--format=onnx", f"--{RULE}")
    calls = [
        (*flags, f"--out={workdir.parent}/whole.onnx"),
        (*flags, f"--out={workdir.parent}/half.onnx", "--float16"),
    ]
    for done in start_each("train.export", calls, {}):
        assert (done.returncode, done.stderr) == (0, "")
        assert "checked      64 test images: probabilities differ by at most" in done.stdout
        assert "all sets are the same" in done.stdout
    return workdir.parent


def images(number=33):
    return np.random.default_rng(number).integers(0, 256, (number, 8, 8, 1), np.uint8)


def test_the_file_says_what_it_is(folder):
    described = files.read_checked(folder / "whole.onnx.json", "a file")
    model = onnx.load(folder / "whole.onnx")
    onnx.checker.check_model(model, full_check=True)
    said = {one.key: json.loads(one.value) for one in model.metadata_props}
    digest = hashlib.sha256((folder / "whole.onnx").read_bytes()).hexdigest()
    assert {**said, "digest": digest} == described
    assert said["classes"] == [str(digit) for digit in range(10)]
    assert (said["rule"]["rule"], said["rule"]["promised"]) == (RULE, 0.9)
    assert said["onnx"] == {"opset": 18, "weights": "float32"}
    (batch, *sizes) = model.graph.input[0].type.tensor_type.shape.dim
    assert (batch.dim_param, [size.dim_value for size in sizes]) == ("n", [8, 8, 1])


def test_weights_of_16_bits_have_limits_of_their_own(folder, classifier):
    names = ("half", "whole")
    half, whole = (json.loads((folder / f"{name}.onnx.json").read_text()) for name in names)
    assert half["onnx"]["weights"] == "float16"
    cards = [(folder / f"{name}.onnx.md").read_text() for name in names]
    assert ["The file stores weights as float16" in card for card in cards] == [True, False]
    sizes = [(folder / f"{name}.onnx").stat().st_size for name in names]
    assert sizes[0] < 0.7 * sizes[1]
    rule, adapted = rules.parse(RULE), export.adapt(classifier, half=True, has_calibration=False)
    of_half, of_whole = (one["rule"]["limits"] for one in (half, whole))
    assert fitted.find(adapted, rule).to_json()["limits"] == of_half
    # The run keeps its own.
    assert fitted.find(classifier, rule).to_json()["limits"] == of_whole != of_half
    with pytest.raises(UserError, match="--calibration has limits for the run's own numbers"):
        export.adapt(classifier, half=True, has_calibration=True)


def test_a_network_in_half_precision_has_limits_for_32_bits(classifier):
    model = dataclasses.replace(classifier.config.model, half_precision=True)
    config = dataclasses.replace(classifier.config, model=model)
    parts = assemble(config, classifier.parts.data.facts, workdir=classifier.workdir)
    rounding = dataclasses.replace(classifier, parts=parts)
    computed = [
        np.asarray(jax.jit(one.scores())(images()))
        for one in (classifier, rounding, export.adapt(rounding, half=False, has_calibration=False))
    ]
    np.testing.assert_array_equal(computed[2], computed[0])
    assert np.abs(computed[1] - computed[0]).max() > 1e-4
    with pytest.raises(UserError, match="a network in half precision computes in another way"):
        export.adapt(rounding, half=False, has_calibration=True)


@pytest.mark.parametrize("name", ["taxonomic", "class_conditional"])
def test_further_rules(workdir, name, tmp_path):
    """The class conditional one has limits that are infinite."""
    rows = [f"{digit},{'low' if digit < 5 else 'high'}" for digit in range(10)]
    (tmp_path / "ranks.csv").write_text("\n".join(["label,half", *rows]))
    of_run = trained.load(workdir, taxonomy=str(tmp_path / "ranks.csv"))
    rule = rules.parse(f"coverage=0.9, rule={name}, new_score=either")
    made = export.export(of_run, rule, None, half=False)
    assert made.checked.startswith("64 test images: probabilities differ")


def test_a_file_that_differs_is_refused(classifier):
    rule, other = (
        fitted_rules.of("average_k=2.5", limit, classes=classifier.classes) for limit in (0.01, 0.3)
    )
    description = export.describe(classifier, rule, half=False)
    content = export.serialize(classifier, other, description)
    with pytest.raises(UserError, match=r"of 64 sets differ from those in JAX on 64 test images"):
        checking.check(classifier, rule, content)
    rounded = export.adapt(classifier, half=True, has_calibration=False)
    content = export.serialize(rounded, rule, description)
    with pytest.raises(UserError, match="a probability in ONNX Runtime differs by"):
        checking.check(classifier, rule, content)
    with pytest.raises(UserError, match="ONNX Runtime refuses the file"):
        checking.check(classifier, rule, content[:-100])


def test_of_two_equal_sets_either_is_right():
    probabilities = np.array([[0.4, 0.4, 0.2], [0.4, 0.4, 0.2], [0.4, 0.4, 0.2], [0.5, 0.4, 0.1]])
    rule = fitted_rules.of("top_k=1", classes=3)
    # The likeliest class, the other that is as likely, a less likely one, and so for the last.
    answers = np.eye(3, dtype=bool)[[0, 1, 2, 1]]
    wrong = checking.wrong(rule, [probabilities.astype(np.float32), answers])
    assert wrong.tolist() == [False, False, True, True]


def test_a_file_that_reads_other_files_is_refused(folder, tmp_path, monkeypatch):
    model = onnx.load(folder / "whole.onnx")
    array = model.graph.initializer[0]
    (tmp_path / "other").write_bytes(array.raw_data)
    array.ClearField("raw_data")
    array.data_location = onnx.TensorProto.EXTERNAL
    array.external_data.add(key="location", value="other")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match="External data path does not exist"):
        onnx_runtime.load(model.SerializeToString())
