"""What a command answers to mistakes in its flags: each file here has command lines and answers.

A command line is followed by the lines that are printed, indented. It starts in an empty folder,
which FOLDER stands for.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.train.forked import ROOT

FILES = sorted(Path(__file__).parent.glob("*.txt"))


def test_mistakes_are_answered_in_these_words(tmp_path):
    text = "".join(file.read_text() for file in FILES)
    typed = [line for line in text.splitlines() if not line.startswith(" ")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.wordings.answers"],
        input="\n".join(typed),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TFDS_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.replace(str(tmp_path), "FOLDER").splitlines() == text.splitlines()
