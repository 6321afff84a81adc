"""Images per second of the input pipeline: gathered from memory, and decoded from JPEG files.

    python -m benchmarks.data [--workers 0 1 2 8] [--repetitions=9] [--output=FILE.json]

Needs the program's dependencies, and no data set. The benchmark
generates the photographs: Gaussian noise whose amplitudes fall as 1 / frequency, as in photographs,
with one pattern for all three channels and a weaker one for each; 500 by 400 pixels, saved as JPEG
with quality 85. The images in memory are 50,000 images of 32 by 32 pixels with uniform noise. The
benchmark times the program's own streams of training batches, including the random order. With 8
consumers, eight streams in one process have a share of each batch, as eight processes of a run
have, and all wait for each other. It measures each stream `--repetitions` times and reports the
median and the best, because other users of the machine can only slow it down.
"""

import functools
import importlib.metadata
import io
import statistics
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import command, markdown, timing
from train.data import streaming
from train.data.batches import Batch, Batches
from train.data.examples import Examples
from train.data.photographs import READER

SIZE = (500, 400)
QUALITY = 85
NUM_PHOTOGRAPHS = 64
PHOTOGRAPH_BATCH = 32
# Batches per repetition: at least half a second, to average the transfers between processes.
PHOTOGRAPH_BATCHES = 16
CONSUMERS = 8
NUM_SMALL = 50_000
SMALL_BATCH = 64
SMALL_BATCHES = 700


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=9, what="timed stretches of each")
    parser.add_argument(
        "--workers",
        type=command.integer(0),
        nargs="+",
        default=[0, 1, 2, 8],
        help="processes; 0 for threads",
    )
    arguments = parser.parse_args()
    command.write(measure(arguments.workers, arguments.repetitions), arguments.output)


def measure(workers: list[int], repetitions: int) -> dict[str, Any]:
    """Images per second of every method."""
    machine = timing.machine()
    machine["versions"]["pillow"] = importlib.metadata.version("pillow")
    encoded = photographs()
    small = Batches(examples=small_images(), size=SMALL_BATCH, seed=0)
    rates: dict[str, list[float]] = {}
    for _ in range(repetitions):
        _add(rates, "gather", functools.partial(_gather, small))
        _add(rates, "one core", functools.partial(_decode, encoded))
    split = encoded_images(encoded)
    for count in workers:
        _measure_streams(rates, f"{count} workers", [_stream(split, num_workers=count)])
    shares = [_stream(split, share=(index, CONSUMERS)) for index in range(CONSUMERS)]
    _measure_streams(rates, f"{CONSUMERS} consumers", shares)
    return {
        "machine": machine,
        "repetitions": repetitions,
        "photographs": {
            "size": SIZE,
            "quality": QUALITY,
            "mean_bytes": round(statistics.mean(map(len, encoded))),
        },
        "images_per_second": {
            name: {"median": statistics.median(values), "best": max(values)}
            for name, values in rates.items()
        },
    }


def photographs() -> list[bytes]:
    """JPEG files of noise with the spectrum of photographs."""
    width, height = SIZE
    rng = np.random.default_rng(0)
    frequencies = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequencies[0, 0] = 1

    def pattern() -> np.ndarray:
        noise = rng.normal(size=(2, *frequencies.shape))
        plane = np.fft.irfft2((noise[0] + 1j * noise[1]) / frequencies, s=(height, width))
        return (plane - plane.mean()) / plane.std()

    files = []
    for _ in range(NUM_PHOTOGRAPHS):
        shared = pattern()
        channels = [120 + 50 * shared + 15 * pattern() for _ in range(3)]
        pixels = np.clip(np.stack(channels, axis=-1), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=QUALITY)
        files.append(file.getvalue())
    return files


def encoded_images(encoded: list[bytes]) -> Examples:
    """The files as examples of one class."""
    labels = np.zeros(len(encoded), np.int32)
    return Examples.of_source(encoded, labels, ("any",), "benchmark", reader=READER)


def small_images() -> Examples:
    """Images in memory: the number of CIFAR-100's training images."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (NUM_SMALL, 32, 32, 3), np.uint8)
    return Examples.of_source(images, np.zeros(NUM_SMALL, np.int32), ("any",), "benchmark")


def tables(results: dict[str, Any]) -> str:
    """The rates as a Markdown table."""
    names = {
        "gather": "32×32 from memory, one core",
        "one core": "JPEG, decoded and cropped, one core",
        "0 workers": "JPEG, one thread per core",
    }
    rates = results["images_per_second"]
    rows = []
    for name, rate in rates.items():
        words = names.get(name, f"JPEG, {name.replace('1 workers', '1 worker')}")
        one_core = rates["one core"]["median"]
        rows.append(
            [
                words,
                f"{rate['median']:,.0f}",
                f"{rate['best']:,.0f}",
                "" if name == "gather" else f"{rate['median'] / one_core:.2f}",
            ]
        )
    return markdown.table(["images", "per second, median", "best", "times one core"], rows)


def _add(rates: dict[str, list[float]], name: str, run: Callable[[], int]) -> None:
    start = time.perf_counter()
    images = run()
    rates.setdefault(name, []).append(images / (time.perf_counter() - start))


def _gather(batches: Batches) -> int:
    return sum(len(batches[step]["images"]) for step in range(SMALL_BATCHES))


def _decode(encoded: list[bytes]) -> int:
    uniform = np.array([0.3, 0.6])
    return sum(len(READER.for_training(image, "a photograph", uniform)) > 0 for image in encoded)


def _stream(
    examples: Examples, *, num_workers: int = 0, share: tuple[int, int] = (0, 1)
) -> Generator[Batch, None, None]:
    batches = Batches(examples=examples, size=PHOTOGRAPH_BATCH, seed=0, share=share)
    return streaming.stream(batches, range(10**9), num_workers=num_workers)


def _measure_streams(
    rates: dict[str, list[float]], name: str, streams: list[Generator[Batch, None, None]]
) -> None:
    """Measures streams whose consumers wait for each other.

    No other streams are open, because they would prefetch in the meantime.
    """
    for _ in range(2):
        _take(streams)
    for _ in range(len(rates["gather"])):
        _add(rates, name, functools.partial(_take, streams))
    for stream in streams:
        stream.close()


def _take(streams: list[Generator[Batch, None, None]]) -> int:
    return sum(len(next(stream)["images"]) for _ in range(PHOTOGRAPH_BATCHES) for stream in streams)


if __name__ == "__main__":
    main()
