"""A table of image files and labels: `--config=configs/table.py`."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.data import options
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.own import own_images, tables


def _spec(config: Mapping[str, Any]) -> DatasetSpec:
    find = functools.partial(
        tables.find,
        Path(config["path"]).expanduser().absolute(),
        validation=config["validation_fraction"],
        test=config["test_fraction"],
    )
    return own_images.make(config, find)


TABLE = DatasetFamily(_spec, options={**options.STREAMED, **own_images.OPTIONS})
