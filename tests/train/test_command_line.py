"""Commands say what they can do without waiting for the libraries that do it."""

import subprocess
import sys

import pytest

from tests.train.forked import ROOT

# Their flags need these alone. The others name losses or data sets in their help.
LIGHT = ("main", "evaluate", "predict", "export", "figures")


@pytest.mark.parametrize("command", LIGHT)
def test_a_command_imports_what_is_slow_when_it_runs(command):
    slow = "{'jax', 'flax', 'matplotlib', 'orbax', 'PIL', 'scipy', 'tensorflow_datasets'}"
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys, train.{command}; assert not {slow} & {{*sys.modules}}",
        ],
        cwd=ROOT,
        check=True,
    )
