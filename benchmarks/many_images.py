"""The time and the memory of `train.predict` for many images, with their page.

    python -m benchmarks.many_images [--images=2000] [--output=FILE.json]

Needs the program's dependencies, and Linux. A network of the digits, trained for an epoch, gets
pictures of 64 x 64 pixels that all differ. With Chromium, `--browser` measures the time until the
page is seen for the first time, and until it is loaded.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import command, timing, watched

_SIDE = 64
_SEEN = """new Promise((done) => new PerformanceObserver((list) => {
  for (const { startTime } of list.getEntriesByName("first-contentful-paint")) done(startTime);
}).observe({ type: "paint", buffered: true }))"""
_LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=None)
    parser.add_argument(
        "--images", type=command.integer(1), default=2000, help="how many there are"
    )
    parser.add_argument("--browser", action="store_true", help="open pages in Chromium")
    arguments = parser.parse_args()
    command.write(measure(arguments.images, browser=arguments.browser), arguments.output)


def measure(images: int, *, browser: bool) -> dict[str, Any]:
    """What the command takes, how large its page is, and how long that takes to open."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_images(folder / "images", images)
        watched.run(
            [
                *("-m", "train.main", "--config=configs/digits.py:cross_entropy"),
                "--config.num_epochs=1",
                f"--workdir={folder}/run",
            ]
        )
        seen = watched.run(
            [
                *("-m", "train.predict", f"--workdir={folder}/run", "--average_k=3"),
                *(f"--images={folder}/images", f"--html={folder}/page.html"),
            ]
        )
        page = folder / "page.html"
        return {
            "machine": timing.machine(),
            "images": images,
            **seen.to_json(),
            "page_mb": round(page.stat().st_size / 1e6, 1),
            **(_seconds_to_open(folder, page) if browser else {}),
        }


def _write_images(folder: Path, number: int) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(number):
        coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8))
        coarse.resize((_SIDE, _SIDE)).save(folder / f"{index:06}.png")


def _seconds_to_open(folder: Path, page: Path) -> dict[str, float]:
    """From the request to the first layout that is seen, and to the end of loading.

    Then the controls work.
    """
    # Only this needs Chromium.
    from tests.peers.browser.chromium import Tab  # noqa: PLC0415

    with Tab(folder / "profile") as tab:
        tab.open(page.as_uri())
        return {
            f"seconds_to_{what}_the_page": round(tab.evaluate(expression) / 1000, 2)
            for what, expression in (("see", _SEEN), ("open", _LOADED))
        }


if __name__ == "__main__":
    main()
