"""The memory of a run of many steps, which should not grow.

    python -m benchmarks.many_steps [--epochs=100] [--output=FILE.json]

Needs the program's dependencies, and Linux. A linear network learns made-up features for epochs of
1,000 steps, each with an evaluation and a checkpoint. The resident memory of the run is looked at
several times a second. The medians of the second thousand steps, when everything is compiled, and
of the last thousand are compared.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import command, timing, watched

_STEPS, _BATCH, _FEATURES, _CLASSES = 1000, 10, 16, 10


def main() -> None:
    """Measures the memory and prints or writes it as JSON."""
    parser = command.parser(__doc__, repetitions=None)
    parser.add_argument("--epochs", type=command.integer(3), default=100, help="of 1,000 steps")
    arguments = parser.parse_args()
    command.write(measure(arguments.epochs), arguments.output)


def measure(epochs: int) -> dict[str, Any]:
    """The memory by thousands of steps."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_features(folder / "features.npz")
        lines = folder / "run" / "metrics.jsonl"
        seen = watched.run(
            [
                *("-m", "train.main", "--config=configs/features.py:cross_entropy"),
                f"--config.dataset.path={folder}/features.npz",
                f"--config.dataset.batch_size={_BATCH}",
                f"--config.num_epochs={epochs}",
                f"--workdir={folder}/run",
            ],
            count=lambda: _finished_epochs(lines),
        )
    by_epoch: dict[int, list[float]] = {}
    for finished, memory in seen.samples:
        by_epoch.setdefault(finished, []).append(memory)
    medians = {finished: round(statistics.median(sizes), 1) for finished, sizes in by_epoch.items()}
    within = {finished: size for finished, size in medians.items() if 1 <= finished < epochs}
    return {
        "machine": timing.machine(),
        "steps": epochs * _STEPS,
        "rss_mb_of_the_second_thousand_steps": within[min(within)],
        "rss_mb_of_the_last_thousand_steps": within[max(within)],
        "rss_mb_after_thousands_of_steps": within,
        **seen.to_json(),
    }


def _write_features(path: Path) -> None:
    rng = np.random.default_rng(0)
    split = np.repeat(["train", "val", "test"], [_STEPS * _BATCH, 500, 500])
    labels = rng.integers(0, _CLASSES, len(split))
    features = rng.normal(size=(_CLASSES, _FEATURES))[labels] + rng.normal(
        size=(len(split), _FEATURES)
    )
    np.savez(path, features=features.astype(np.float32), labels=labels, split=split)


def _finished_epochs(lines: Path) -> int:
    """How many epochs have been evaluated."""
    try:
        return sum('"split": "validation"' in line for line in lines.read_text().splitlines())
    except FileNotFoundError:
        return 0


if __name__ == "__main__":
    main()
