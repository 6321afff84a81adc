"""One classifier with its sets as a program of StableHLO, which JAX runs, and as an ONNX file.

    python -m benchmarks.program_formats [--repetitions=21] [--output=FILE.json]

The networks are the digits' network, after an epoch, and EfficientNet-Lite0 with random weights.
The first answer is that of the script beside a program, from its start to its end, for one
photograph. The other times are of calls that take turns in one process, with pixels in memory.
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
from train.classifiers import packaged

BATCHES = (1, 16)
_STARTS = 5
_FORMATS = {"StableHLO": "program", "ONNX": "onnx"}


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    arguments = command.parser(__doc__, repetitions=21).parse_args()
    repetitions = arguments.repetitions
    results = {"machine": timing.machine("onnxruntime"), "repetitions": repetitions}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = {
            "digits": deployment.train_digits(folder),
            "EfficientNet-Lite0": deployment.make_lite0(folder),
        }
        found = {name: measure(given, folder, repetitions) for name, given in made.items()}
    command.write({**results, "starts": _STARTS, "classifiers": found}, arguments.output)


def measure(given: dict[str, str], folder: Path, repetitions: int) -> dict[str, Any]:
    """The size of each file in bytes, and the seconds of answers."""
    photograph, sizes, first, packages = folder / "photograph.jpg", {}, {}, {}
    photograph.write_bytes(data.photographs()[0])
    for kind, name in _FORMATS.items():
        file = deployment.export(given, folder / name, f"--format={name}")
        sizes[kind], packages[kind] = file.stat().st_size, packaged.read(file)
        first[kind] = statistics.median(_seconds(file, photograph) for _ in range(_STARTS))
    seconds = {}
    for number in BATCHES:
        shape = (number, *packages["ONNX"].shape)
        pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
        calls = {
            kind: lambda one=one: jax.block_until_ready(one.call(pixels))  # noqa: B023
            for kind, one in packages.items()
        }
        seconds[str(number)] = timing.medians_in_turns(calls, repetitions)
    return {"bytes": sizes, "first_answer": first, "seconds": seconds}


def _seconds(file: Path, photograph: Path) -> float:
    """How long the script beside a file takes for a photograph."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, f"{file}.py", photograph], check=True, capture_output=True)
    return time.perf_counter() - begun


def tables(results: dict[str, Any]) -> str:
    """Sizes, first answers, and images per second as Markdown."""
    header = ["classifier", "as", "size, MB", "first answer of the script, s", "next answers, ms"]
    rows = [[*header, f"images per second, in batches of {BATCHES[-1]}"]]
    for name, found in results["classifiers"].items():
        for kind in _FORMATS:
            one, many = (found["seconds"][str(number)][kind] for number in BATCHES)
            size, first = found["bytes"][kind] / 1e6, found["first_answer"][kind]
            times = f"{first:.2f}", f"{1e3 * one:.2f}", f"{BATCHES[-1] / many:,.0f}"
            rows.append([name, kind, f"{size:.2f}", *times])
    counted = (
        f"medians of {results['starts']} starts and of {results['repetitions']} calls in turns"
    )
    table = markdown.table(rows[0], rows[1:])
    return f"{markdown.machine(results['machine'])}; {counted}.\n\n{table}"


if __name__ == "__main__":
    main()
