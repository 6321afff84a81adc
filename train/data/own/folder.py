"""A folder with a folder of images for each class: `--config=configs/folder.py`."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.data import options
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.own import folders, own_images
from train.foundation import fields


def _spec(config: Mapping[str, Any]) -> DatasetSpec:
    find = functools.partial(
        folders.find,
        Path(config["path"]).expanduser().absolute(),
        nested=config["nested"],
        validation=config["validation_fraction"],
        test=config["test_fraction"],
    )
    return own_images.make(config, find)


FOLDER = DatasetFamily(
    _spec,
    options={
        **options.STREAMED,
        **own_images.OPTIONS,
        # Whether each folder with images is a class, as in genus/species.
        "nested": fields.boolean(),
    },
)
