"""One classifier of digits: it is trained once, and each command is then looked at on it."""

import dataclasses
import json
from pathlib import Path

import pytest
from PIL import Image

from tests.promises import commands, moments, recomputed
from train import data


@dataclasses.dataclass(frozen=True)
class Digits:
    """A finished run, and the images of its test split.

    Attributes:
        folder: what else the tests write stands in it, too.
        workdir: the run.
        flags: the flags of its command, without --workdir.
        out: what the command printed.
        broken: what was there of the run when a checkpoint was about to be renamed, which makes
            it one: the folders by the steps of these checkpoints.
        dataset: the opened data set.
        photographs: the folder of the test images, a folder for each class.
    """

    folder: Path
    workdir: Path
    flags: dict
    out: str
    broken: dict[int, Path]
    dataset: data.Dataset
    photographs: Path

    def results(self):
        """What the run wrote at its end."""
        return json.loads((self.workdir / "results.json").read_text())


@pytest.fixture(scope="session")
def digits(tmp_path_factory, run_seed):
    folder = tmp_path_factory.mktemp("digits")
    flags = {
        "config": "configs/digits.py",
        "fields": {
            **{"num_epochs": 2, "model.name": "mlp", "seed": run_seed},
            # One in the middle of the second epoch.
            "checkpoint.every_steps": 26,
        },
    }
    with moments.copies(folder / "run", folder) as broken:
        ended = commands.ok(commands.line("main", workdir=folder / "run", **flags))
    dataset = data.read({"name": "digits", "batch_size": 1}).load(None)
    for index, label in enumerate(dataset.test.labels):
        file = folder / "photographs" / str(label) / f"{index:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(dataset.test.rows(index)[..., 0]).save(file)
    return Digits(folder, folder / "run", flags, ended.out, broken, dataset, folder / "photographs")


@pytest.fixture(scope="session")
def scores(digits):
    """The scores of both splits that `train.evaluate` writes beside its reports."""
    found = {}
    for split in ("test", "validation"):
        file = digits.folder / f"{split}.npz"
        commands.ok(commands.line("evaluate", workdir=digits.workdir, split=split, out=file))
        found[split] = recomputed.read(file)
    return found
