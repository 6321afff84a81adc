"""Damaged files of prepared data, read completely in this process."""

import functools
import hashlib
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.train.chaos import blocks
from tests.train.chaos.mutations import damage
from tests.train.chaos.trials import drawn
from tests.train.data import small
from tests.train.data.specs import dataset_spec
from train import prepare
from train.data.records import Records, Split
from train.foundation.errors import UserError

# As a file that is larger than any of these.
_MEMORY = 2**30
# In memory, and as records that are decoded in time.
CONFIGS = {
    "digits": {"name": "digits"},
    "plantnet300k": {"name": "plantnet300k", "decoding": "exact"},
}


def _digest(split: Split) -> str:
    digest = hashlib.sha256(np.asarray(split.labels).astype(np.int64).tobytes())
    if isinstance(split.images, Records):
        for index in range(len(split.images)):
            digest.update(split.images.encoded(index)[0])
    else:
        digest.update(np.asarray(split.images).tobytes())
    return digest.hexdigest()


def _read(name: str, data_dir: Path) -> object:
    """All that a run reads of its data."""
    dataset = dataset_spec(CONFIGS[name]).load(str(data_dir))
    splits = [_digest(split) for split in (dataset.train, dataset.validation, dataset.test)]
    return dataset.class_names, dataset.image_shape, splits


def _tried(name: str, data_dir: Path, expected: object) -> str | None:
    try:
        found = _read(name, data_dir)
    except (UserError, OSError) as error:
        told = str(error)
        return told if "\n" in told or "MemoryError" in told else None
    except BaseException:
        return traceback.format_exc()[-2000:]
    return None if found == expected else f"read {found} instead of {expected}"


def _begin(folder: Path) -> blocks.Trial:
    small.shrink(setattr)
    small.plantnet(folder / "manual")
    whole, data_dir = folder / "whole", folder / "at"
    prepare.prepare(
        "plantnet300k",
        data_dir=str(whole),
        manual_dir=str(folder / "manual"),
        skip_unreadable=False,
    )
    # The first reading makes what is missing: the digits.
    expected = {name: _read(name, whole) for name in CONFIGS}
    seed = int(blocks.settings()["seed"])

    def trial(index: int) -> tuple[str, Callable[[], str | None]]:
        draw = drawn("prepared data", seed, index)
        name = draw.choice(list(CONFIGS))
        shutil.rmtree(data_dir, ignore_errors=True)
        shutil.copytree(whole, data_dir)
        found = sorted(path for path in (data_dir / name).rglob("*") if path.is_file())
        what = damage(draw.choice(found), draw)
        return what, functools.partial(_tried, name, data_dir, expected[name])

    return trial


def main() -> None:
    blocks.serve(_begin, memory=_MEMORY)


if __name__ == "__main__":
    main()
