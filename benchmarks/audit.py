"""The time and the memory of `train.audit`.

    python -m benchmarks.audit [--examples=100000] [--classes=200] [--features=1280]
        [--output=FILE.json]

Needs the program's dependencies, Linux, and room for the features on the disk of temporary files:
half a gigabyte by default. The features are normal around the mean of their class. The means are so
far apart that most labels are the most probable class. One label of twenty is wrong.
"""

import csv
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import command, timing, watched

_PART = 0.05
# The distance of class means in each feature, over the root of their number.
_DISTANCE = 5.0


def main() -> None:
    """Measures the audit and prints or writes the numbers as JSON."""
    parser = command.parser(__doc__, repetitions=None)
    whole = command.integer(1)
    parser.add_argument("--examples", type=whole, default=100_000, help="rows of features")
    parser.add_argument("--classes", type=whole, default=200, help="classes")
    parser.add_argument("--features", type=whole, default=1280, help="columns of features")
    arguments = parser.parse_args()
    found = measure(arguments.examples, arguments.classes, arguments.features)
    command.write(found, arguments.output)


def measure(examples: int, classes: int, features: int) -> dict[str, Any]:
    """The time and the memory, and how many of the wrong labels come first."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        is_wrong = _write(folder / "data", examples, classes, features)
        load = os.getloadavg()[0]
        seen = watched.run(
            [
                *("-m", "train.audit", "--config=features", f"--config.dataset.path={folder}/data"),
                *(f"--out={folder}/audit.csv", f"--json={folder}/audit.json"),
            ]
        )
        numbers = json.loads((folder / "audit.json").read_text())
        with (folder / "audit.csv").open(newline="") as file:
            rows = [int(row["name"].removeprefix("row ")) for row in csv.DictReader(file)]
    return {
        "machine": timing.machine(),
        "load_before": round(load, 1),
        "examples": examples,
        "classes": classes,
        "features": features,
        **seen.to_json(),
        "accuracy": round(numbers["accuracy"], 4),
        "wrong": int(is_wrong.sum()),
        "estimated_wrong": round(numbers["wrong"]),
        "in_the_first_tenth": round(
            float(is_wrong[rows[: len(rows) // 10]].sum() / is_wrong.sum()), 4
        ),
    }


def _write(folder: Path, examples: int, classes: int, features: int) -> np.ndarray:
    """Writes features and labels, and returns which labels are wrong, bool [n]."""
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=examples)
    scale = np.float32(_DISTANCE / np.sqrt(features))
    means = scale * rng.standard_normal((classes, features), np.float32)
    rows = rng.standard_normal((examples, features), np.float32)
    rows += means[labels]
    np.save(folder / "features.npy", rows)
    is_wrong = rng.random(examples) < _PART
    others = (labels + rng.integers(1, classes, size=examples)) % classes
    np.save(folder / "labels.npy", np.where(is_wrong, others, labels))
    return is_wrong


if __name__ == "__main__":
    main()
