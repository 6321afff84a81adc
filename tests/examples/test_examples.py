"""Every example runs as its docstring says, and learns what it is to learn."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
# A limit for a hang, in seconds.
TIME_LIMIT = 300
# What the last line has to say, and between what numbers: the accuracies with room for other
# versions of the libraries, the coverages within four standard errors of what was asked for.
EXAMPLES = {
    "plain_jax": (r"top-3 accuracy on 450 test images: ([\d.]+)", 0.97, 1.0),
    "flax_nnx": (r"top-3 accuracy on 450 test images: ([\d.]+)", 0.97, 1.0),
    "equinox_network": (r"top-3 accuracy on 450 test images: ([\d.]+)", 0.97, 1.0),
    "keras_on_jax": (r"top-3 accuracy on 450 test images: ([\d.]+)", 0.97, 1.0),
    "two_heads": (r"average-2 accuracy: ([\d.]+)", 0.97, 1.0),
    "average_k_of_scores": (r"sets of 1.5 classes on average: ([\d.]+)", 0.93, 1.0),
    # One draw deviates by 0.0055, the square root of 0.01 x 0.99 (1 / 500 + 1 / 997).
    "conformal_sets": (r"requested 0.99: ([\d.]+)", 0.99 - 4 * 0.0055 / 200**0.5, 0.994),
    "optuna_search": (r"test top-3 accuracy: ([\d.]+)", 0.97, 1.0),
    # 0.562 is the most that there is to be had; 0.0002 is chance.
    "recommender": (r"the next item is among the 20 best of 100,000: ([\d.]+)", 0.3, 0.562 + 0.08),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_learns(name):
    pattern, low, high = EXAMPLES[name]
    module = f"examples.{name}"
    path = ROOT / "examples" / f"{name}.py"
    assert f"    python -m {module}\n" in path.read_text()
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(pattern, done.stdout.splitlines()[-1])
    assert found is not None, done.stdout
    assert low <= float(found[1]) <= high


def test_no_example_is_left_out():
    there = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert there == {*EXAMPLES, "__init__", "digits_data"}


def test_the_notebook_runs():
    path = ROOT / "examples" / "level_sets_and_digits.ipynb"
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(ROOT)}}
    nbclient.NotebookClient(notebook, timeout=TIME_LIMIT, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    printed = "".join(output.get("text", "") for output in outputs)
    for accuracy in re.findall(r"top-3 ([\d.]+)", printed):
        assert float(accuracy) > 0.97
    assert len(re.findall(r"mean size ([\d.]+)", printed)) == 2
