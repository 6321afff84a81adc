"""Which altered copies of photographs are found as near-duplicates, and at what cost.

    python -m benchmarks.near_duplicates [--images=1500] [--output=FILE.json]

Needs the program's dependencies. The photographs are mixtures of those of `benchmarks.data`, of 500
by 400 pixels. The benchmark alters each in several ways, looks at the originals and the copies as a
new run does before its first step, and counts the copies that are found, and the other pairs.
"""

import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from benchmarks import command, markdown, timing
from benchmarks.data import photographs
from train.data import look, near_duplicates
from train.data.examples import Examples

_QUALITY = 80


def _cut(image: Image.Image, left: float, upper: float, right: float, lower: float) -> Image.Image:
    """The image without parts of its sides."""
    width, height = image.size
    return image.crop(
        (
            round(width * left),
            round(height * upper),
            round(width * (1 - right)),
            round(height * (1 - lower)),
        )
    )


_COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "encoded again, quality 30": lambda image: image,
    "half the size": lambda image: image.resize((image.width // 2, image.height // 2)),
    "30 % brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.3),
    "cut by 2.5 % at each side": lambda image: _cut(image, *(0.025,) * 4),
    "cut by 5 % at each side": lambda image: _cut(image, *(0.05,) * 4),
    "cut by 10 % at one side": lambda image: _cut(image, 0.1, 0, 0, 0),
    "rotated by 2 degrees": lambda image: image.rotate(2),
    "mirrored": ImageOps.mirror,
}


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=None)
    parser.add_argument(
        "--images", type=command.integer(1), default=1500, help="how many photographs there are"
    )
    arguments = parser.parse_args()
    command.write(measure(arguments.images), arguments.output)


def measure(images: int) -> dict[str, Any]:
    """The parts of the copies that are found, other pairs, and the work of a look and of pairs."""
    decoded = [np.asarray(Image.open(io.BytesIO(one))) for one in photographs()]
    originals = [_mixture(decoded, np.random.default_rng(index)) for index in range(images)]
    start = time.process_time()
    copies = _grey_copies([_encoded(one) for one in originals])
    looked = time.process_time()
    others = len(near_duplicates.alike(copies).first)
    compared = time.process_time()
    found = {}
    for name, alter in _COPIES.items():
        quality = 30 if "quality 30" in name else _QUALITY
        altered = _grey_copies([_encoded(alter(one), quality) for one in originals])
        pairs = near_duplicates.alike(np.concatenate([copies, altered]))
        found[name] = int((pairs.second - pairs.first == images).sum()) / images
    return {
        "machine": timing.machine(),
        "images": images,
        "found": found,
        "other_pairs": others,
        "look_ms": 1000 * (looked - start) / images,
        "compare_ms": 1000 * (compared - looked) / images,
    }


def tables(results: dict[str, Any]) -> str:
    """The parts as a Markdown table."""
    rows = [[name, f"{part:.1%}"] for name, part in results["found"].items()]
    return markdown.table(["copy", "found"], rows)


def _mixture(decoded: list[np.ndarray], random: np.random.Generator) -> Image.Image:
    chosen = (decoded[one] for one in random.choice(len(decoded), 2, replace=False))
    # They are periodic.
    first, second = (np.roll(one, random.integers(0, one.shape[:2]), (0, 1)) for one in chosen)
    return Image.fromarray(first // 2 + second // 2)


def _encoded(image: Image.Image, quality: int = _QUALITY) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def _grey_copies(encoded: list[bytes]) -> np.ndarray:
    labels = np.zeros(len(encoded), np.int32)
    return look.look(Examples.of_source(encoded, labels, ("any",), "benchmark")).copies


if __name__ == "__main__":
    main()
