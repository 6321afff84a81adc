"""Writes the table of the part of Tiny ImageNet that the fine-tuning study uses.

    python docs/evidence/fine_tuned/part.py tiny_imagenet_32 part.csv

The classes are every fifth one of the sorted 200. Of each, 60 training images may be trained on, 10
others select, and the 50 test images are compared.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

CLASSES_EVERY = 5
PER_CLASS = {"train": 60, "val": 10}


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path, help="a folder with train and test, and their classes")
    parser.add_argument("table", type=Path, help="the file")
    given = parser.parse_args()
    with given.table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "label", "split"), *rows(given.images)])


def rows(images: Path) -> list[tuple[str, str, str]]:
    """The path, the class and the split of each image."""
    random = np.random.default_rng(0)
    found = []
    for folder in sorted((images / "train").iterdir())[::CLASSES_EVERY]:
        drawn = random.permutation(sorted(folder.iterdir())).tolist()
        for split, number in PER_CLASS.items():
            chosen, drawn = drawn[:number], drawn[number:]
            found += [(str(path.absolute()), folder.name, split) for path in chosen]
        tested = sorted((images / "test" / folder.name).iterdir())
        found += [(str(path.absolute()), folder.name, "test") for path in tested]
    return found


if __name__ == "__main__":
    main()
