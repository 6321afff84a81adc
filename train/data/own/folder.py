"""A folder with a folder of images for each class: `--config=configs/folder.py`."""

import functools
from collections.abc import Mapping
from typing import Any

from train.data import options
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.own import folders, found_images, own_images
from train.data.own.found_images import FoundImages
from train.foundation import fields


def _spec(config: Mapping[str, Any]) -> DatasetSpec:
    def find(_data_dir: str | None) -> FoundImages:
        in_files = functools.partial(folders.find, nested=config["nested"])
        return found_images.find(config, in_files)

    return own_images.make(config, find)


FOLDER = DatasetFamily(
    _spec,
    options={
        **options.STREAMED,
        **own_images.PATH,
        **own_images.OPTIONS,
        # Whether each folder with images is a class, as in genus/species.
        "nested": fields.boolean(),
    },
)
