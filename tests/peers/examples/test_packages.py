"""The examples that use an export: they give the sets of the script beside it."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.promises import commands

ROOT = Path(__file__).parents[3]
# A limit for a hang, in seconds.
TIME_LIMIT = 300
# A local Ray with few resources, and then the example.
LOCAL_RAY = """
import ray
ray.init(num_cpus=2, object_store_memory=80 * 2**20, include_dashboard=False)
from examples import predict_with_ray
predict_with_ray.main()
"""


@pytest.fixture(scope="module")
def exported(finished_run, tmp_path_factory):
    """An export of a run on digits, which can say that an image is none of them."""
    out = tmp_path_factory.mktemp("exported") / "digits.onnx"
    given = {"workdir": finished_run, "sets": "coverage=0.9, new_score=mahalanobis"}
    commands.ok(commands.line("export", **given, format="onnx", out=out))
    return out


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photographs")
    for number, values in enumerate(load_digits().images[:5]):
        Image.fromarray((values * 15).astype(np.uint8)).save(folder / f"{number}.png")
    Image.effect_noise((60, 40), 200).save(folder / "noise.jpg")
    (folder / "damaged.png").write_text("no image")
    (folder / "notes.txt").write_text("no photograph")
    return folder


@pytest.fixture(scope="module")
def lines(exported, photographs):
    """What the script prints of each photograph, by their paths."""
    images = [path for path in photographs.iterdir() if path.suffix != ".txt"]
    done = subprocess.run(
        [sys.executable, f"{exported}.py", *images], capture_output=True, text=True, check=False
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [sorted(line) for line in found if "set" not in line] == [["error", "path"]], done
    assert any(line.get("none_of_these") for line in found)
    return {line["path"]: line for line in found}


def test_ray_writes_the_lines_of_the_script(exported, photographs, lines, tmp_path):
    out = tmp_path / "sets.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", LOCAL_RAY, exported, photographs, out],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(found) == len(lines)
    for line in found:
        expected = lines[line["path"]]
        assert line.keys() == expected.keys()
        if "set" in line:
            assert line["none_of_these"] == expected["none_of_these"]
            ours, theirs = (
                {one["class"]: one["probability"] for one in which["set"]}
                for which in (line, expected)
            )
            # The size of a batch may change the last bits.
            assert ours == pytest.approx(theirs, rel=1e-5)


def test_the_page_shows_the_set_of_the_script(exported, lines, monkeypatch):
    """Gradio itself is not installed: it needs another Pillow than all else here."""
    shown = []

    class Interface:
        def __init__(self, answer, *_given, **_options):
            shown.append(answer)

        def launch(self):
            pass

    gradio = SimpleNamespace(Image=dict, Label=dict, Interface=Interface)
    monkeypatch.setitem(sys.modules, "gradio", gradio)
    importlib.import_module("examples.gradio_app").main(str(exported))
    (answer,) = shown
    for path, line in lines.items():
        if "set" in line:
            found, note = answer(path)
            assert found == {one["class"]: one["probability"] for one in line["set"]}
            assert bool(note) == line["none_of_these"]
