"""One classifier with its sets in JAX, as a program of StableHLO and as an ONNX file.

    python -m benchmarks.program_formats [--repetitions=21] [--output=FILE.json]

Needs the dependencies of the program and of its ONNX export. The networks are the digits' network,
after an epoch, and EfficientNet-Lite0 with random weights. The time of the first answer is the time
of the script beside a program, from its start to its end, for one photograph. The other times are
of calls that take turns in one process, with pixels in memory.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import command, data, deployment, markdown, timing
from train.classifiers import loading, program
from train.classifiers.flags import ChosenClassifier
from train.classifiers.trained import TrainedClassifier
from train.prediction import exported_program
from train.reports import rules

BATCHES = (1, 16)
_STARTS = 5
_ENDINGS = {"StableHLO": "stablehlo", "ONNX": "onnx"}


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=21)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = {
            "digits": deployment.train_digits(folder),
            "EfficientNet-Lite0": deployment.make_lite0(folder),
        }
        classes = {
            name: measure(given, folder, arguments.repetitions) for name, given in made.items()
        }
    results = {
        "machine": timing.machine("onnxruntime"),
        "repetitions": arguments.repetitions,
        "starts": _STARTS,
        "classifiers": classes,
    }
    command.write(results, arguments.output)


def measure(given: dict[str, str], folder: Path, repetitions: int) -> dict[str, Any]:
    """The size of each file in bytes, and the seconds of answers."""
    name = given.get("model", "digits")
    files = {
        kind: deployment.export(
            given,
            folder / f"{name}.{ending}",
            *(["--format=onnx"] if kind == "ONNX" else []),
        )
        for kind, ending in _ENDINGS.items()
    }
    photograph = folder / "photograph.jpg"
    photograph.write_bytes(data.photographs()[0])
    first = {kind: _first_answer(file, photograph) for kind, file in files.items()}
    classifier = loading.load(ChosenClassifier(**given))  # type: ignore[arg-type]
    assert isinstance(classifier, TrainedClassifier)
    rule = rules.parse(f"top_k={deployment.K}")
    calls = {
        "JAX": jax.jit(exported_program.make(classifier, rule)),
        **{kind: program.read(file).load().call for kind, file in files.items()},
    }
    rng = np.random.default_rng(0)
    seconds = {}
    for batch in BATCHES:
        pixels = rng.integers(0, 256, (batch, *classifier.shape)).astype(np.uint8)
        contestants = {
            kind: lambda call=call: jax.block_until_ready(call(pixels))  # noqa: B023
            for kind, call in calls.items()
        }
        seconds[str(batch)] = timing.medians_in_turns(contestants, repetitions)
    return {
        "bytes": {kind: file.stat().st_size for kind, file in files.items()},
        "first_answer": first,
        "seconds": seconds,
    }


def _first_answer(file: Path, photograph: Path) -> float:
    """The median seconds of the script beside a program, for one photograph."""
    taken = []
    for _ in range(_STARTS):
        begun = time.perf_counter()
        subprocess.run([sys.executable, f"{file}.py", photograph], check=True, capture_output=True)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def tables(results: dict[str, Any]) -> str:
    """Sizes, first answers, and images per second as Markdown."""
    rows = []
    for name, found in results["classifiers"].items():
        for kind in ("JAX", *_ENDINGS):
            size, first = found["bytes"].get(kind), found["first_answer"].get(kind)
            rows.append(
                [
                    name,
                    kind,
                    "–" if size is None else f"{size / 1e6:.2f}",
                    "–" if first is None else f"{first:.2f}",
                    f"{1e3 * found['seconds']['1'][kind]:.2f}",
                    *(
                        f"{int(batch) / found['seconds'][batch][kind]:,.0f}"
                        for batch in found["seconds"]
                        if batch != "1"
                    ),
                ]
            )
    header = [
        *("classifier", "as", "size, MB", "first answer of the script, s"),
        *("next answers, ms", f"images per second, in batches of {BATCHES[-1]}"),
    ]
    return "\n\n".join(
        [
            f"{markdown.machine(results['machine'])}; medians of {results['starts']} starts and of "
            f"{results['repetitions']} calls in turns.",
            markdown.table(header, rows),
        ]
    )


if __name__ == "__main__":
    main()
