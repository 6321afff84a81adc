"""Data sets of Hugging Face by the commands of the page, and in processes that decode."""

import json

import numpy as np

from configs import huggingface as recipe
from tests.parts.program.data.own import page, parquet_pictures, small_hub
from tests.parts.program.data.specs import dataset_spec
from tests.parts.program.forked import start
from train.data.pipeline import Pipeline

LABELS = [index % 3 for index in range(60)]
# For runs on three classes that take a few seconds.
SHORT = (
    *("--config.num_epochs=2", "--config.model.name=mlp"),
    *("--config.eval.ks=(1, 2)", "--config.loss.k=1", "--config.select_by=loss"),
)


def test_the_commands_of_the_page_run(tmp_path):
    parquet_pictures.write(tmp_path / "birds", {"train": LABELS})
    parquet_pictures.write(tmp_path / "hub" / "ylecun" / "mnist", {"train": LABELS, "test": LABELS})
    commands = page.commands(page.section("A data set of Hugging Face"))
    assert [module for module, _ in commands] == ["train.main", "train.main"]
    with small_hub.serve(tmp_path / "hub") as address:
        environment = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home"), "XLA_FLAGS": ""}
        for module, arguments in commands:
            folder = str(tmp_path)
            done = start(module, *arguments, *SHORT, environment=environment, folder=folder)
            assert (done.returncode, done.stderr) == (0, "")
    for name in ("birds", "mnist"):
        results = json.loads((tmp_path / "runs" / name / "results.json").read_text())
        assert results["num_classes"] == 3


def test_a_mistake_is_one_line(tmp_path):
    file = parquet_pictures.write(tmp_path / "trees", {"train": LABELS}) / "train.parquet"
    file.write_bytes(file.read_bytes()[:-1000])
    arguments = ("--config=configs/huggingface.py", f"--config.dataset.path={file.parent}")
    environment = {"HF_HOME": str(tmp_path / "home"), "XLA_FLAGS": ""}
    done = start("train.main", *arguments, environment=environment)
    assert (done.returncode, done.stdout) == (2, "")
    # `datasets` logs the error before it raises it.
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: config.dataset.path {file.parent}: Parquet magic bytes not")


def test_processes_decode_the_same_batches(tmp_path):
    config = recipe.get_config()
    config.dataset.path = str(parquet_pictures.write(tmp_path / "trees", {"train": LABELS}))
    spec = dataset_spec(json.loads(config.to_json())["dataset"])
    split = spec.load(str(tmp_path / "cache")).train
    here, there = (
        list(Pipeline(8, seed=0, num_workers=number).training(split, first_step=0, last_step=7))
        for number in (0, 2)
    )
    assert len(here) == len(there) == 7
    for one, other in zip(here, there, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
