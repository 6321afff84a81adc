"""The time to group the photographs of a folder, and to find near-duplicates in two splits.

    python -m benchmarks.near_duplicates [--images=100000] [--output=FILE.json]

Needs the program's dependencies, and 60 kB of disk for a photograph. The benchmark writes
photographs of 500 by 400 pixels into a temporary folder: mixtures of the photographs of
`benchmarks.data`. By their names, two are of one observation. One of a hundred is a copy of the one
before it, at half the size. The benchmark times what a new run does before its first step: with
`config.dataset.group` for the observations, without groups, and with `near_duplicates`. All files
are in the system's cache.
"""

import io
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import command, markdown, timing
from benchmarks.data import photographs
from train.configuration.datasets import FolderFields
from train.data import dataset_spec
from train.data.own.own_images import OwnImagesSpec
from train.foundation import reading
from train.workdir import overlooked

_QUALITY = 60
_CLASSES = 100
_COPIES = 100
_GROUPS = (r"(obs\d+)_", None, "near_duplicates")
_PARTS = ("opening", "near-duplicates")


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=None)
    parser.add_argument(
        "--images", type=command.integer(_COPIES), default=100_000, help="how many there are"
    )
    arguments = parser.parse_args()
    command.write(measure(arguments.images), arguments.output)


def measure(images: int) -> dict[str, Any]:
    """The seconds of each part, and how many of the copies are found."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        _write(root, images)
        return {
            "machine": timing.machine(),
            "images": images,
            "copies": images // _COPIES,
            "groups": {str(group): _seconds(root, group) for group in _GROUPS},
        }


def tables(results: dict[str, Any]) -> str:
    """The seconds as a Markdown table."""
    header = [
        "`config.dataset.group`",
        *(f"{part}, {kind}" for part in _PARTS for kind in ("s", "s of a core")),
        "listed",
    ]
    rows = [
        [
            f"`{group}`",
            *(f"{found[part][kind]:,.0f}" for part in _PARTS for kind in ("seconds", "work")),
            f"{found['listed']:,}",
        ]
        for group, found in results["groups"].items()
    ]
    return markdown.table(header, rows)


def _seconds(root: Path, group: str | None) -> dict[str, Any]:
    """The time to open the data set and to look for near-duplicates, and how many are listed."""
    fields = FolderFields(name="folder", path=str(root), batch_size=1, group=group)
    spec = dataset_spec(fields)
    assert isinstance(spec, OwnImagesSpec)
    times = [_now()]
    dataset = spec.load(None)
    times.append(_now())
    found = overlooked.find(dataset, fields)
    times.append(_now())
    passed = [
        {"seconds": end[0] - start[0], "work": end[1] - start[1]}
        for start, end in itertools.pairwise(times)
    ]
    return dict(zip(_PARTS, passed, strict=True)) | {"listed": len(found.rows)}


def _now() -> tuple[float, float]:
    """The time, and the work of all threads."""
    return time.perf_counter(), time.process_time()


def _write(root: Path, images: int) -> None:
    for number in range(_CLASSES):
        (root / f"class {number}").mkdir()
    decoded = [np.asarray(Image.open(io.BytesIO(one))) for one in photographs()]

    def write(index: int) -> None:
        is_copy = index % _COPIES == _COPIES - 1
        rng = np.random.default_rng(index - is_copy)
        chosen = (decoded[one] for one in rng.choice(len(decoded), 2, replace=False))
        # They are periodic.
        first, second = (np.roll(one, rng.integers(0, one.shape[:2]), (0, 1)) for one in chosen)
        image = Image.fromarray(first // 2 + second // 2)
        if is_copy:
            image = image.resize((image.width // 2, image.height // 2))
        observation = index // 2
        place = root / f"class {observation % _CLASSES}" / f"obs{observation:06d}_{index % 2 + 1}"
        image.save(place.with_suffix(".jpg"), quality=_QUALITY)

    for _ in reading.in_threads(write, range(images), ahead=16):
        pass


if __name__ == "__main__":
    main()
