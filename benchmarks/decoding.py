"""Images per second of a core of each `config.dataset.decoding`, and the difference in pixels.

    python -m benchmarks.decoding [--repetitions=51] [--output=FILE.json]

Needs the program's dependencies, cykooz-resizer and simplejpeg, and no data set. It reads
random crops of JPEG files of 500 by 400 pixels: the generated photographs of `benchmarks.data`, and
parts of the two photographs of scikit-learn, saved with quality 85 too. A generated photograph has
about 100 kB, like the photographs of ImageNet and Pl@ntNet-300K. The others are smaller, and take
less time to decode. The two decodings take turns. Decoding and resizing are also timed separately,
in turns. The times are processor time, which other jobs on the machine change less than the time
that passes.
"""

import importlib.metadata
import io
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from benchmarks import command, markdown, timing
from benchmarks.data import QUALITY, SIZE, photographs
from train.data import fast_images, images
from train.data.photographs import reader_of

NUM_GENERATED = 8
READERS = {decoding: reader_of(decoding) for decoding in ("exact", "fast")}
# All of the files are JPEG files.
DECODERS: Mapping[str, Callable[[bytes], object]] = {
    "exact": lambda file: images.decode(file, "a file"),
    "fast": fast_images.decode_jpeg,
}
# The places of the crops that are compared: how far down and how far right.
PLACES = np.array([(0, 0), (0.3, 0.6), (0.999, 0.999)])
TIMED_PLACE = PLACES[1]
# The upper left corners of the parts of scikit-learn's photographs, which have 640 by 427 pixels.
CORNERS = ((0, 0), (140, 27), (70, 10))


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=51, what="timed turns of each")
    arguments = parser.parse_args()
    command.write(measure(arguments.repetitions), arguments.output)


def measure(repetitions: int) -> dict[str, Any]:
    """The rates and the differences, for each kind of photographs."""
    machine = timing.machine()
    for package in ("pillow", "simplejpeg", "cykooz-resizer"):
        machine["versions"][package] = importlib.metadata.version(package)
    kinds = {"generated": photographs()[:NUM_GENERATED], "of scikit-learn": _of_scikit_learn()}
    return {
        "machine": machine,
        "repetitions": repetitions,
        "photographs": {name: _compared(files, repetitions) for name, files in kinds.items()},
    }


def tables(results: dict[str, Any]) -> str:
    """The rates and the differences as a Markdown table."""
    rows = [
        [
            name,
            f"{found['mean_bytes'] / 1000:.0f}",
            *(f"{found['rates'][kind]['median']:,.0f}" for kind in ("exact", "fast")),
            *(f"{found['rates'][kind]['best']:,.0f}" for kind in ("exact", "fast")),
            *(f"{found['ratio'][part]:.2f}" for part in ("both", "decoding")),
            f"{found['difference']['mean']:.2f}",
            f"{found['difference']['largest']}",
        ]
        for name, found in results["photographs"].items()
    ]
    header = [
        "photographs",
        "kB",
        "exact, per second",
        "fast",
        "exact, best",
        "fast, best",
        "fast / exact",
        "the same, decoding alone",
        "mean difference of 255",
        "largest",
    ]
    return markdown.table(header, rows)


def _of_scikit_learn() -> list[bytes]:
    width, height = SIZE
    files = []
    for photograph in load_sample_images().images:
        for left, top in CORNERS:
            file = io.BytesIO()
            part = Image.fromarray(photograph[top : top + height, left : left + width])
            part.save(file, "JPEG", quality=QUALITY)
            files.append(file.getvalue())
    return files


def _compared(files: list[bytes], repetitions: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {}
    for repetition in range(repetitions + 1):
        # Each of the two is first equally often.
        for kind in sorted(READERS, reverse=bool(repetition % 2)):
            reader, decode = READERS[kind], DECODERS[kind]
            for name, run in {
                kind: lambda file, reader=reader: reader.for_training(file, "a file", TIMED_PLACE),
                f"{kind} decoding": lambda file, decode=decode: decode(file),
            }.items():
                took = _seconds(run, files)
                if repetition:  # The first one warms up.
                    seconds.setdefault(name, []).append(took)
    differences = [
        READERS["fast"].for_training(file, "a file", place).astype(int)
        - READERS["exact"].for_training(file, "a file", place)
        for file in files
        for place in PLACES
    ]
    return {
        "files": len(files),
        "mean_bytes": round(statistics.mean(map(len, files))),
        "rates": {
            name: {"median": 1 / statistics.median(values), "best": 1 / min(values)}
            for name, values in seconds.items()
        },
        "ratio": {
            "both": _ratio(seconds["exact"], seconds["fast"]),
            "decoding": _ratio(seconds["exact decoding"], seconds["fast decoding"]),
        },
        "difference": {
            "mean": float(np.mean(np.abs(differences))),
            "largest": int(np.max(np.abs(differences))),
        },
    }


def _seconds(run: Callable[[bytes], Any], files: list[bytes]) -> float:
    """The work of a core for one file."""
    start = time.process_time()
    for file in files:
        run(file)
    return (time.process_time() - start) / len(files)


def _ratio(slow: list[float], fast: list[float]) -> float:
    """The median ratio of two turns that follow each other."""
    return statistics.median(one / other for one, other in zip(slow, fast, strict=True))


if __name__ == "__main__":
    main()
