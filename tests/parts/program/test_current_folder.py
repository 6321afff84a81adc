"""A command runs no file of the current folder; tests/endurance has all of them."""

import os
import subprocess
import sys

import numpy as np

from tests.parts.program import installation
from tests.parts.program.forked import ROOT, TIME_LIMIT


def test_scores_are_evaluated_beside_files_with_the_names_of_all_modules(tmp_path):
    folder = tmp_path / "current"
    folder.mkdir()
    np.savez(folder / "scores.npz", logits=np.eye(4, dtype=np.float32), labels=np.arange(4))
    console = str(ROOT / "topk_jax" / "_console.py")
    done = subprocess.run(
        [sys.executable, "-P", console, "evaluate", "--scores=scores.npz", "--top_k=1"],
        cwd=folder,
        env={**os.environ, **installation.planting(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert not (folder / installation.RAN).exists()
    # One that is not installed, and the first folder of many packages.
    assert (folder / "libtpu.py").exists()
    assert (folder / "jax_plugins.py").exists()
