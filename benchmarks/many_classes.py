"""The memory of every command for many classes: training, prediction and evaluation.

    python -m benchmarks.many_classes [--classes=20000] [--output=FILE.json]

Needs the program's dependencies, and Linux. A linear network learns made-up features, with two
training rows, one validation row and one test row of each class.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import command, timing, watched

_FEATURES = 64


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=None)
    parser.add_argument(
        "--classes", type=command.integer(2), default=20_000, help="how many there are"
    )
    arguments = parser.parse_args()
    command.write(measure(arguments.classes), arguments.output)


def measure(classes: int) -> dict[str, Any]:
    """What each command takes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_features(folder, classes)
        run = f"--workdir={folder}/run"
        commands = {
            "train": [
                *("-m", "train.main", "--config=configs/features.py", run),
                *(f"--config.dataset.path={folder}/features.npz", "--config.num_epochs=2"),
                *("--config.optimizer.name=adamw", "--config.optimizer.learning_rate=0.02"),
            ],
            "predict": [
                *("-m", "train.predict", run, f"--features={folder}/rows.npz", "--average_k=5"),
                f"--html={folder}/page.html",
            ],
            "evaluate": ["-m", "train.evaluate", run, "--coverage=0.9"],
        }
        found = {name: watched.run(arguments).to_json() for name, arguments in commands.items()}
        results = json.loads((folder / "run" / "results.json").read_text())
        return {
            "machine": timing.machine(),
            "classes": classes,
            "training_rows": 2 * classes,
            **found,
            "page_mb": round((folder / "page.html").stat().st_size / 1e6, 1),
            "top_5_accuracy": results["test"]["top_5_accuracy"],
        }


def _write_features(folder: Path, classes: int) -> None:
    rng = np.random.default_rng(0)
    split = np.tile(["train", "train", "val", "test"], classes)
    labels = np.repeat(np.arange(classes), 4)
    centers = rng.normal(size=(classes, _FEATURES))
    features = centers[labels] + 0.3 * rng.normal(size=(len(labels), _FEATURES))
    features = features.astype(np.float32)
    np.savez(folder / "features.npz", features=features, labels=labels, split=split)
    np.savez(folder / "rows.npz", features=features[:200])


if __name__ == "__main__":
    main()
