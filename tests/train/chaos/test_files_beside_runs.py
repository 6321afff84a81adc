"""Damaged tables, thresholds, images and features that commands read beside a run.

A damaged table may have other labels, so only the end of a command is looked at.
"""

import csv
import shutil

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.train.chaos.material import COMMANDS, why_no_end
from tests.train.chaos.mutations import damage
from tests.train.forked import start

pytestmark = [pytest.mark.slow, pytest.mark.long]

NUM_TRIALS = {"train.evaluate": 30, "train.audit": 20}
NUM_NEW = 60


def arguments(folder):
    """Those of each command, and the files that it reads."""
    evaluated = [
        f"--workdir={folder / 'run'}",
        f"--table={folder / 'new' / 'table.csv'}",
        *("--coverages=0.8", f"--thresholds={folder / 'thresholds.json'}"),
        f"--examples={folder / 'errors.html'}",
        f"--out={folder / 'out.json'}",
    ]
    audited = [
        *("--config=features", f"--config.dataset.path={folder / 'features.npz'}"),
        f"--config.dataset.corrections={folder / 'corrections.csv'}",
        f"--out={folder / 'audit.csv'}",
    ]
    return {
        "train.evaluate": (evaluated, ["new/table.csv", "thresholds.json", "new/7.png"]),
        "train.audit": (audited, ["features.npz", "corrections.csv"]),
    }


def write_table(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run on digits, new digits, thresholds of these, and features.

    They are made in the folder `at` beside the one that is returned, and the run keeps its path.
    """
    at = tmp_path_factory.mktemp("beside") / "at"
    at.mkdir()
    made = COMMANDS["train.main of a finished run"].run(at)
    assert made.returncode == 0, made.stderr
    digits, new = load_digits(), at / "new"
    new.mkdir()
    for index, pixels in enumerate(digits.images[:NUM_NEW]):
        Image.fromarray((15 * pixels).astype(np.uint8)).save(new / f"{index}.png")
    groups = [f"writer {index // 2}" for index in range(NUM_NEW)]
    labels = digits.target[:NUM_NEW].tolist()
    rows = [(f"{index}.png", labels[index], groups[index]) for index in range(NUM_NEW)]
    write_table(new / "table.csv", ("path", "label", "group"), rows)
    np.savez(at / "features.npz", features=digits.data.astype(np.float32), labels=digits.target)
    write_table(at / "corrections.csv", ("row", "correction"), [(3, "7"), (8, "-"), (11, "")])
    ended = start(
        "train.evaluate",
        *(f"--workdir={at / 'run'}", f"--table={new / 'table.csv'}", "--coverages=0.8"),
        *("--recalibrate=half", f"--calibration_out={at / 'thresholds.json'}"),
        f"--out={at / 'half.json'}",
        environment={"XLA_FLAGS": ""},
    )
    assert ended.returncode == 0, ended.stderr
    return at.rename(at.with_name("whole"))


@pytest.mark.parametrize("module", NUM_TRIALS)
def test_damaged_files_beside_a_run(trials_of, whole, module):
    trials = trials_of(f"{module} and damaged files beside a run")
    at = whole.with_name("at")
    given, files = arguments(at)[module]

    def end():
        return start(module, *given, environment={"XLA_FLAGS": ""})

    shutil.copytree(whole, at)
    undamaged = end()
    assert undamaged.returncode == 0, undamaged.stderr
    for index in range(NUM_TRIALS[module]):
        shutil.rmtree(at)
        shutil.copytree(whole, at)
        draw = trials.draw(str(index))
        what = damage(at / draw.choice(files), draw).replace(str(at), "")
        trials.attempt(f"{index}: {what}", lambda: why_no_end(end()))
    shutil.rmtree(at)
    trials.check()
