"""What takes long to import is imported by the data sets that need it, not by all."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import train.configuration, train.data, train.data.pipeline
heavy = ("datasets", "grain", "sklearn", "tensorflow", "tensorflow_datasets")
assert not [name for name in heavy if name in sys.modules]
train.data.dataset_spec(train.configuration.DatasetFields(name="digits", batch_size=1))
assert not [name for name in heavy if name in sys.modules]
"""


def test_data_sets_are_listed_without_what_opens_and_prepares_them():
    subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[4],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        check=True,
        timeout=60,
    )
