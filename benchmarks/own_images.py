"""Images per second of your own images, read from their files and from records.

    python -m benchmarks.own_images [--path=FOLDER ...] [--repetitions=9] [--output=FILE.json]

Needs the program's dependencies and no data set: it measures with the photographs of
`benchmarks.data`, written to 1,024 files, and with each folder of images that --path names. The
records are written to a temporary folder. The benchmark times the program's own streams of training
batches, with one thread per core, default augmentation and the random order. Files and records
take turns, and all of them are in the system's cache, so that the disk does not matter.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import command, markdown, timing
from benchmarks.data import SIZE, photographs
from configs import folder
from train import data, prepare
from train.data import Split
from train.data.own import folders
from train.data.pipeline import Pipeline

NUM_FILES = 1024
BATCH = 64
# A stretch takes a second or more.
SECONDS = 1.0
KINDS = ("files", "records")
# The work of all threads counts; other jobs on the machine change it little.
RATES = ("per second", "per second of a core")
GENERATED = f"photographs of {SIZE[0]} × {SIZE[1]} pixels, generated"


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=9, what="timed stretches of each")
    parser.add_argument(
        "--path", type=_folder, action="append", default=[], help="a folder of images"
    )
    arguments = parser.parse_args()
    command.write(measure(arguments.path, arguments.repetitions), arguments.output)


def measure(paths: list[Path], repetitions: int) -> dict[str, Any]:
    """Images per second from files and from records, for each folder."""
    with tempfile.TemporaryDirectory() as name:
        temporary = Path(name)
        _write_photographs(temporary / "photographs")
        sources = {GENERATED: temporary / "photographs", **{path.name: path for path in paths}}
        return {
            "machine": timing.machine(),
            "repetitions": repetitions,
            "rates": {
                name: _rates(path, temporary / f"records-{index}", repetitions)
                for index, (name, path) in enumerate(sources.items())
            },
        }


def tables(results: dict[str, Any]) -> str:
    """The rates as a Markdown table."""
    rows = [
        [
            name,
            f"{rates['images']:,}",
            *(f"{rates[kind][key]:,.0f}" for key in RATES for kind in KINDS),
            *(f"{rates['ratio'][key]:.2f}" for key in RATES),
        ]
        for name, rates in results["rates"].items()
    ]
    header = [
        "images",
        "number",
        *(f"{kind}, {key}" for key in RATES for kind in KINDS),
        *(f"files / records, {key}" for key in RATES),
    ]
    return markdown.table(header, rows)


def _folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"must be a folder of images; got {text!r}")
    return path.absolute()


def _write_photographs(root: Path) -> None:
    encoded = photographs()
    for index in range(NUM_FILES):
        path = root / f"class {index % 2}" / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        # What follows the end of a JPEG image is ignored; no file is a copy of another.
        path.write_bytes(encoded[index % len(encoded)] + index.to_bytes(4))


def _rates(path: Path, records: Path, repetitions: int) -> dict[str, Any]:
    """The medians of the rates, and of the ratios of two stretches that follow each other."""
    # Standard output is for the results.
    with contextlib.redirect_stdout(sys.stderr):
        prepare.write_records("folder", path, records, nested=False)
    splits = {"files": _train(path), "records": _train(records)}
    batches = 1
    # Into the system's cache.
    for file in (*path.rglob("*"), *records.rglob("*")):
        if file.is_file():
            file.read_bytes()
    for split in splits.values():
        _rate(split, batches)
    while batches * BATCH / _rate(splits["files"], batches)["per second"] < SECONDS:
        batches *= 2
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in splits}
    for repetition in range(repetitions):
        # Each of the two is first equally often.
        for name in sorted(splits, reverse=bool(repetition % 2)):
            rates[name].append(_rate(splits[name], batches))
    pairs = list(zip(rates["files"], rates["records"], strict=True))
    return {
        "images": len(folders.find(path, nested=False).listing),
        **{
            name: {key: statistics.median(one[key] for one in values) for key in RATES}
            for name, values in rates.items()
        },
        "ratio": {
            key: statistics.median(one[key] / other[key] for one, other in pairs) for key in RATES
        },
    }


def _train(path: Path) -> Split:
    config = folder.get_config()
    config.dataset.path = str(path)
    return data.read(config.dataset.to_dict()).load(None).train


def _rate(split: Split, batches: int) -> dict[str, float]:
    """The images of a stretch of training batches by the time, and by the work of a core."""
    stream = Pipeline(BATCH, seed=0).training(split, first_step=0, last_step=batches)
    start, start_of_work = time.perf_counter(), time.process_time()
    images = sum(len(batch["images"]) for batch in stream)
    seconds, work = time.perf_counter() - start, time.process_time() - start_of_work
    return dict(zip(RATES, (images / seconds, images / work), strict=True))


if __name__ == "__main__":
    main()
