"""A data set of Hugging Face: `--config=configs/huggingface.py`."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.data import options
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.own import named_splits, own_images
from train.data.own.division import Division
from train.data.own.found_images import FoundImages, most_bytes
from train.foundation import fields, packages
from train.foundation.errors import UserError


def _spec(config: Mapping[str, Any]) -> DatasetSpec:
    path, name = config["path"], config["huggingface_name"]
    if (path is None) == (name is None):
        raise UserError(
            "either config.dataset.path, a folder of Parquet files, or "
            "config.dataset.huggingface_name, as in user/name, must be given; got "
            f"{'neither' if path is None else 'both'}"
        )

    def find(data_dir: str | None) -> FoundImages:
        package = importlib.util.find_spec("datasets")
        # Without an origin, it is any folder of this name.
        if package is None or package.origin is None:
            field = "config.dataset.name: huggingface"
            raise UserError(packages.missing(field, "datasets", "huggingface"))
        # Imported here because datasets takes long to import.
        from train.data.own import huggingface_images  # noqa: PLC0415

        return huggingface_images.find(
            path=None if path is None else Path(path).expanduser().absolute(),
            name=name,
            config=config["huggingface_config"],
            cache=None if data_dir is None else str(Path(data_dir).expanduser().absolute()),
            image_column=config["image_column"],
            label_column=config["label_column"],
            splits=named_splits.chosen(config),
            divided=Division.of(config),
            most_bytes=most_bytes(config),
        )

    return own_images.make(config, find)


HUGGINGFACE = DatasetFamily(
    _spec,
    options={
        **options.STREAMED,
        # A folder or a .parquet file.
        "path": fields.text(optional=True),
        # On the hub, as in "user/name".
        "huggingface_name": fields.text(optional=True),
        # The part of the data set that is meant, where it has several.
        "huggingface_config": fields.text(optional=True),
        # None for the only column of their type.
        "image_column": fields.text(optional=True),
        "label_column": fields.text(optional=True),
        **named_splits.OPTIONS,
        **own_images.OPTIONS,
    },
)
