"""A table of image files and labels: `--config=configs/table.py`."""

from collections.abc import Mapping
from typing import Any

from train.data import options
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.own import found_images, own_images, tables
from train.data.own.found_images import FoundImages


def _spec(config: Mapping[str, Any]) -> DatasetSpec:
    def find(_data_dir: str | None) -> FoundImages:
        return found_images.find(config, tables.find)

    return own_images.make(config, find)


TABLE = DatasetFamily(_spec, options={**options.STREAMED, **own_images.PATH, **own_images.OPTIONS})
