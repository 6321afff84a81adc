"""The memory of `train.evaluate` for scores on a disk.

    python -m benchmarks.stored_scores [--examples=1000000] [--classes=1000] [--output=FILE.json]

Needs the program's dependencies, Linux, and twice the size of the scores on the disk of temporary
files: four gigabytes by default. The logits are random, and higher by 2 at the label.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import command, timing, watched

_ROWS = 10_000


def main() -> None:
    """Measures the memory and prints or writes it as JSON."""
    parser = command.parser(__doc__, repetitions=None)
    whole = command.integer(1)
    parser.add_argument("--examples", type=whole, default=1_000_000, help="rows of scores")
    parser.add_argument("--classes", type=whole, default=1000, help="columns of scores")
    arguments = parser.parse_args()
    command.write(measure(arguments.examples, arguments.classes), arguments.output)


def measure(examples: int, classes: int) -> dict[str, Any]:
    """The memory, and two of the numbers that were found."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder, examples, classes)
        size = (folder / "logits.npy").stat().st_size
        seen = watched.run(
            [
                *("-m", "train.evaluate", f"--logits={folder}/logits.npy"),
                *(f"--labels={folder}/labels.npy", f"--out={folder}/report.json"),
                *("--ks=1,5", "--coverages=0.9"),
            ]
        )
        report = json.loads((folder / "report.json").read_text())
    return {
        "machine": timing.machine(),
        "examples": examples,
        "classes": classes,
        "file_mb": round(size / 1e6),
        **seen.to_json(),
        "top_5_accuracy": report["metrics"]["top_5_accuracy"],
        "average_5_set_size": report["metrics"]["average_5_set_size"],
    }


def _write(folder: Path, examples: int, classes: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, examples)
    np.save(folder / "labels.npy", labels)
    with (folder / "logits.npy").open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (examples, classes)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, examples, _ROWS):
            of_rows = labels[start : start + _ROWS]
            logits = rng.standard_normal((len(of_rows), classes), np.float32)
            logits[np.arange(len(of_rows)), of_rows] += 2
            file.write(logits.data)


if __name__ == "__main__":
    main()
