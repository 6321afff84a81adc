"""Data sets of Hugging Face by the command, and in processes that decode."""

import numpy as np

from tests.parts.program.data import parquet_pictures
from tests.parts.program.data.specs import dataset_spec
from tests.parts.program.forked import start
from train.data import streaming
from train.data.batches import Batches

LABELS = [index % 3 for index in range(60)]


def test_a_mistake_is_one_line(tmp_path):
    file = parquet_pictures.write(tmp_path / "trees", {"train": LABELS}) / "train.parquet"
    file.write_bytes(file.read_bytes()[:-1000])
    arguments = ("--config=images", f"--config.dataset.path=hf:{file.parent}")
    environment = {"HF_HOME": str(tmp_path / "home"), "XLA_FLAGS": ""}
    done = start("train.main", *arguments, environment=environment)
    assert (done.returncode, done.stdout) == (2, "")
    # `datasets` logs the error before it raises it.
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: config.dataset.path {file.parent}: Parquet magic bytes not")


def test_processes_decode_the_same_batches(tmp_path):
    folder = parquet_pictures.write(tmp_path / "trees", {"train": LABELS})
    spec = dataset_spec({"name": "images", "path": f"hf:{folder}", "image_size": 80})
    batches = Batches(examples=spec.load(str(tmp_path / "cache")).train, size=8, seed=0)
    here, there = (
        list(streaming.stream(batches, range(7), num_workers=number)) for number in (0, 2)
    )
    assert len(here) == len(there) == 7
    for one, other in zip(here, there, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
