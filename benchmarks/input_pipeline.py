"""Images per second of the input pipeline: gathered from memory, and decoded from JPEG files.

    python -m benchmarks.input_pipeline [--output=FILE.json]

Needs no data set: the photographs are Gaussian noise whose amplitudes fall as 1 / frequency, as in
photographs, with one pattern for all three channels and a weaker one for each; 500 by 400 pixels,
saved as JPEG with quality 85. The images in memory are 50,000 images of 32 by 32 pixels. The
benchmark times the program's own streams of training batches, in random order. It reports the
median and the best, because other users of the machine can only slow it down.
"""

import contextlib
import functools
import io
import statistics
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import table, timing
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
NUM_SMALL = 50_000
SMALL_BATCH = 64
SMALL_BATCHES = 700
# Processes; 0 for threads of this one.
WORKERS = (0, 1, 2)


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    given = timing.parse(timing.parser(__doc__, repetitions=9, what="timed stretches of each"))
    timing.write(_measure(WORKERS[:1] if given.smoke else WORKERS, given.repetitions), given.output)


def tables(results: Mapping[str, Any]) -> str:
    """The rates as a Markdown table."""
    names = {
        "gather": "32×32 from memory, one core",
        "one core": "JPEG, decoded and cropped, one core",
        "0 workers": "JPEG, one thread per core",
    }
    rates = results["images_per_second"]
    one_core = rates["one core"]["median"]
    rows = (
        [
            names.get(name, f"JPEG, {name}"),
            f"{rate['median']:,.0f}",
            f"{rate['best']:,.0f}",
            "" if name == "gather" else f"{rate['median'] / one_core:.2f}",
        ]
        for name, rate in rates.items()
    )
    header = ["images", "per second, median", "best", "times one core"]
    return f"{table.machine(results)}.\n\n{table.markdown(header, rows)}"


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


def _measure(workers: tuple[int, ...], repetitions: int) -> dict[str, Any]:
    """Images per second of every method."""
    encoded = photographs()
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (NUM_SMALL, 32, 32, 3), np.uint8)
    in_memory = Batches(examples=_of_one_class(small), size=SMALL_BATCH, seed=0)
    rates = {
        "gather": _rates(functools.partial(_gather, in_memory), repetitions),
        "one core": _rates(functools.partial(_decode, encoded), repetitions),
    }
    photos = Batches(examples=_of_one_class(encoded, reader=READER), size=PHOTOGRAPH_BATCH, seed=0)
    for count in workers:
        # Closed before the next one starts: it would read ahead in the meantime.
        with contextlib.closing(
            streaming.stream(photos, range(10**9), num_workers=count)
        ) as stream:
            take = functools.partial(_take, stream)
            take()
            take()
            rates[f"{count} workers"] = _rates(take, repetitions)
    return {
        "machine": timing.machine("pillow"),
        "repetitions": repetitions,
        "photographs": {
            "size": SIZE,
            "quality": QUALITY,
            "mean_bytes": round(statistics.mean(map(len, encoded))),
        },
        "images_per_second": rates,
    }


def _of_one_class(images: Any, **options: Any) -> Examples:
    labels = np.zeros(len(images), np.int32)
    return Examples.of_source(images, labels, ("any",), "benchmark", **options)


def _rates(run: Callable[[], int], repetitions: int) -> dict[str, float]:
    found = []
    for _ in range(repetitions):
        start = time.perf_counter()
        images = run()
        found.append(images / (time.perf_counter() - start))
    return {"median": statistics.median(found), "best": max(found)}


def _gather(batches: Batches) -> int:
    return sum(len(batches[step]["images"]) for step in range(SMALL_BATCHES))


def _decode(encoded: list[bytes]) -> int:
    uniform = np.array([0.3, 0.6])
    return sum(len(READER.for_training(image, "a photograph", uniform)) > 0 for image in encoded)


def _take(stream: Generator[Batch, None, None]) -> int:
    return sum(len(next(stream)["images"]) for _ in range(PHOTOGRAPH_BATCHES))


if __name__ == "__main__":
    main()
