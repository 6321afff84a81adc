"""The time and the memory of `train.predict` for many images, with their page.

    python -m benchmarks.many_images [--images=20000] [--output=FILE.json]

Needs the program's dependencies, and Linux. A network of the digits, trained for an epoch, gets
pictures of 64 x 64 pixels that all differ. With Chromium, `--browser` measures the time until the
first and the last page are seen for the first time, and until they are loaded.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import command, timing, watched
from train.prediction.html_page import page_files

_SIDE = 64
_SEEN = """new Promise((done) => new PerformanceObserver((list) => {
  for (const { startTime } of list.getEntriesByName("first-contentful-paint")) done(startTime);
}).observe({ type: "paint", buffered: true }))"""
_LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=None)
    parser.add_argument(
        "--images", type=command.integer(1), default=20_000, help="how many there are"
    )
    parser.add_argument("--browser", action="store_true", help="open pages in Chromium")
    arguments = parser.parse_args()
    command.write(measure(arguments.images, browser=arguments.browser), arguments.output)


def measure(images: int, *, browser: bool) -> dict[str, Any]:
    """What the command takes, how large its pages are, and how long they take to open."""
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
        first = folder / "page.html"
        last = page_files.path(first, page_files.number(images))
        pages = [first, *folder.glob("page.*.html")]
        opened = _seconds_to_open(folder, {"first": first, "last": last}) if browser else {}
        return {
            "machine": timing.machine(),
            "images": images,
            **seen.to_json(),
            "pages": len(pages),
            "pages_mb": round(sum(page.stat().st_size for page in pages) / 1e6, 1),
            "largest_page_mb": round(max(page.stat().st_size for page in pages) / 1e6, 2),
            **opened,
        }


def _write_images(folder: Path, number: int) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(number):
        coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8))
        coarse.resize((_SIDE, _SIDE)).save(folder / f"{index:06}.png")


def _seconds_to_open(folder: Path, pages: dict[str, Path]) -> dict[str, float]:
    """From each request to the first layout that is seen, and to the end of loading.

    Then the controls work.
    """
    # Only this needs Chromium.
    from tests.peers.browser.chromium import Tab  # noqa: PLC0415

    seconds = {}
    with Tab(folder / "profile") as tab:
        for name, page in pages.items():
            tab.open(page.as_uri())
            for what, expression in (("see", _SEEN), ("open", _LOADED)):
                milliseconds = tab.evaluate(expression)
                seconds[f"seconds_to_{what}_the_{name}_page"] = round(milliseconds / 1000, 2)
    return seconds


if __name__ == "__main__":
    main()
