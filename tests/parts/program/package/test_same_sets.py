"""A run and its exports give the same sets for the same photographs, however they are asked."""

import base64
import contextlib
import io
import json
import runpy
import urllib.request

import numpy as np
import onnxruntime
import pytest

from tests.parts.program.package import photographs
from tests.promises import commands, own_data
from train.data import steps

FORMATS = ("program", "onnx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The exports of a short run on coloured pictures, which it reads with 24 by 24 pixels."""
    folder = tmp_path_factory.mktemp("same_sets")
    where = own_data.in_folder(folder, own_data.given())
    commands.ok(own_data.line(where, folder / "run", **{"dataset.image_size": 24}))
    for kind in FORMATS:
        given = {"workdir": folder / "run", "coverage": 0.6, "format": kind}
        commands.ok(commands.line("export", **given, out=folder / kind))
    return folder


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    found = photographs.write(tmp_path_factory.mktemp("photographs"))
    assert len(found) == 20
    return found


def predicted(paths, **given):
    """The sets of `train.predict`."""
    line = commands.line("predict", images=paths[0].parent, **given)
    lines = [json.loads(one) for one in commands.ok(line).out.splitlines()]
    assert [line["path"] for line in lines] == [str(path) for path in paths]
    return sets_of(lines)


def sets_of(lines):
    """The classes of each line with their probabilities, in their order."""
    return [[(one["class"], one["probability"]) for one in line["set"]] for line in lines]


@pytest.fixture(scope="module")
def of_run(folder, paths):
    found = predicted(paths, workdir=folder / "run", coverage=0.6)
    # Sets that differ: a photograph of which another is read has another set.
    assert len({tuple(name for name, _ in members) for members in found}) > 3
    return found


def check_same(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert [name for name, _ in ours] == [name for name, _ in theirs]
        np.testing.assert_allclose([p for _, p in ours], [p for _, p in theirs], rtol=1e-5)


@pytest.mark.parametrize("kind", FORMATS)
def test_predict_with_the_export(folder, paths, of_run, kind):
    check_same(predicted(paths, weights=folder / kind), of_run)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_script(folder, paths, of_run, kind, monkeypatch):
    monkeypatch.setattr("sys.argv", ["script", *map(str, paths)])
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit, match="0"):
        runpy.run_path(f"{folder / kind}.py", run_name="__main__")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["path"] for line in lines] == [str(path) for path in paths]
    check_same(sets_of(lines), of_run)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_server(folder, paths, of_run, kind):
    images = [base64.b64encode(path.read_bytes()).decode() for path in paths]
    body = json.dumps({"images": images}).encode()
    with commands.served(program=folder / kind) as url:
        request = urllib.request.Request(
            f"{url}/predict", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as response:
            check_same(sets_of(json.load(response)["sets"]), of_run)


def test_onnx_runtime_with_the_steps_of_the_description(folder, paths, of_run):
    description = json.loads((folder / "onnx.json").read_text())
    pixels = [steps.prepare(path.read_bytes(), description["images"]["steps"]) for path in paths]
    session = onnxruntime.InferenceSession(folder / "onnx")
    probabilities, chosen = session.run(None, {"images": np.stack(pixels)})
    found = [
        sorted(
            zip(np.array(description["classes"])[own], values[own], strict=True),
            key=lambda one: -one[1],
        )
        for values, own in zip(probabilities, chosen, strict=True)
    ]
    check_same(found, of_run)
