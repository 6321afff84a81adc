"""`train.export`: what it prints calls the program, and it replaces only what it wrote."""

import json
import shutil
import subprocess
import sys

import jax.export
import numpy as np
import pytest

from tests.parts.program.forked import start
from train.classifiers import packaged, trained
from train.foundation.errors import UserError


@pytest.fixture(scope="module")
def exported(finished_run, tmp_path_factory):
    """A program of the command, and what was printed."""
    path = tmp_path_factory.mktemp("export") / "program"
    arguments = (f"--workdir={finished_run}", f"--out={path}", "--coverage=0.9")
    done = start("train.export", *arguments, environment={})
    assert (done.returncode, done.stderr) == (0, "")
    return path, done.stdout


def test_checkpoints_of_another_copy_than_the_results_are_refused(finished_run, tmp_path):
    copy = shutil.copytree(finished_run, tmp_path / "run")
    results = json.loads((copy / "results.json").read_text())
    (copy / "results.json").write_text(json.dumps({**results, "best_step": 9}))
    with pytest.raises(UserError, match="checkpoints/9 is damaged"):
        trained.load(copy)


def test_jax_calls_it_and_gets_what_the_run_says(exported, finished_run):
    path, printed = exported
    assert printed.endswith(f"\n  python {path}.py photo.jpg\n")
    images = np.zeros((3, 8, 8, 1), np.uint8)
    probabilities, chosen = jax.export.deserialize(bytearray(path.read_bytes())).call(images)
    expected = trained.load(finished_run).scores()(images)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5, atol=1e-7)
    assert chosen.shape == (3, 10)


def test_it_replaces_only_what_an_export_wrote(exported, finished_run, tmp_path):
    def export(out):
        return start("train.export", f"--workdir={finished_run}", "--top_k=3", f"--out={out}")

    done = export(tmp_path / "notes.md")
    assert (done.returncode, done.stderr[:31]) == (2, "error: --out must be of another")
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "notes.md").write_text("mine")
    done = export(tmp_path / "notes")
    assert (done.returncode, (tmp_path / "notes.md").read_text()) == (2, "mine")
    assert "must not replace" in done.stderr
    for file in exported[0].parent.iterdir():
        shutil.copy(file, tmp_path)
    assert export(tmp_path / "program").returncode == 0
    assert str(packaged.read(tmp_path / "program").own_rule) == "top_k=3"


@pytest.mark.parametrize("name", ["program", "program.json"])
def test_the_script_of_a_damaged_pair_prints_one_line(exported, tmp_path, name):
    for file in exported[0].parent.iterdir():
        shutil.copy(file, tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    # In the description, the name of a class.
    content[content.rindex(b'"7"') + 1 if name == "program.json" else len(content) // 2] ^= 1
    (tmp_path / name).write_bytes(content)
    line = [sys.executable, "program.py", "a.png"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: program with program.json cannot be read: ")
