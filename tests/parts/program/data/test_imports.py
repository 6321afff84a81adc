"""What takes long to import is imported by the data sets that need it, not by all."""

import subprocess
import sys

import pytest

from tests.parts.program.forked import ROOT

# What is imported, and what is not imported with it.
MODULES = {
    # Commands read flags and configurations before they need a device.
    "train.data, train.configuration": "jax datasets sklearn tensorflow tensorflow_datasets",
    "train.data.batches, train.data.streaming, train.data.splits": "jax sklearn tensorflow",
    "train.data.own_images, train.data.own_features": "jax datasets tensorflow_datasets sklearn",
    "train.data.sources.folder, train.data.sources.table": "jax datasets pyarrow",
    "train.data.sources.features, train.data.sources.named_splits": "jax sklearn",
    "train.data.sources.huggingface": "jax tensorflow",
    "train.data.sources.tfds": "jax datasets tensorflow",
}


@pytest.mark.parametrize("modules", MODULES)
def test_data_sets_are_listed_without_what_opens_and_prepares_them(modules):
    program = f"import sys, {modules}; assert not sys.modules.keys() & {{*sys.argv[1:]}}"
    line = [sys.executable, "-c", program, *MODULES[modules].split()]
    subprocess.run(line, cwd=ROOT, check=True, timeout=60)
