"""The page of `train.export --format=web` in Chromium: how soon it answers.

    python -m benchmarks.in_browser --onnxruntime_web=FOLDER [--repetitions=5] [--output=FILE.json]

Needs the dependencies of the program and of its ONNX export, Chromium, and the npm package
onnxruntime-web in a folder, which `make test-peers PEERS=browser` leaves in
build/onnxruntime-web/package. The classifier is EfficientNet-Lite0 with random weights; the
photographs are those of the tests, in many formats and orientations.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import command, deployment, markdown, timing
from tests.peers.browser import test_web_page as pages
from tests.peers.browser.chromium import Tab


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=5, what="visits with an empty cache")
    parser.add_argument("--onnxruntime_web", required=True, type=Path, help="the npm package")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results = measure(Path(name), arguments.onnxruntime_web, arguments.repetitions)
    command.write({"machine": timing.machine("onnxruntime"), **results}, arguments.output)


def measure(folder: Path, package: Path, visits: int) -> dict[str, Any]:
    """The seconds of first and of later answers."""
    site = deployment.export(
        deployment.make_lite0(folder),
        folder / "site",
        *("--format=web", f"--onnxruntime_web={package}"),
    )
    pictures = folder / "pictures"
    pictures.mkdir()
    pages.photographs(pictures)
    paths = sorted(pictures.iterdir())
    first, later = [], []
    with pages.served(site) as address:
        for visit in range(visits):
            with Tab(folder / f"profile {visit}") as tab:
                begun = time.perf_counter()
                tab.open(address)
                assert tab.evaluate(pages.STATE) == "ready"
                pages.give(tab, paths[0])
                first.append(time.perf_counter() - begun)
                for path in paths[1:]:
                    begun = time.perf_counter()
                    pages.give(tab, path)
                    later.append(time.perf_counter() - begun)
    return {
        "visits": visits,
        "site_bytes": sum(path.stat().st_size for path in site.rglob("*")),
        "first_answer": statistics.median(first),
        "later_answer": statistics.median(later),
        "slowest_later_answer": max(later),
        "photographs": len(paths),
    }


def tables(results: dict[str, Any]) -> str:
    """The page as one row of Markdown."""
    header = ["site, MB", "first answer, s", "later answers, s", "slowest of these, s"]
    times = [results[name] for name in ("first_answer", "later_answer", "slowest_later_answer")]
    row = [f"{results['site_bytes'] / 1e6:.1f}", *(f"{taken:.2f}" for taken in times)]
    about = f"medians of {results['visits']} visits with {results['photographs']} photographs each"
    return f"{markdown.machine(results['machine'])}; {about}.\n\n{markdown.table(header, [row])}"


if __name__ == "__main__":
    main()
