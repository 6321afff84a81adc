"""A data set of Hugging Face: `--config=configs/huggingface.py`."""

import importlib.util
from pathlib import Path

from train.configuration.datasets import HuggingfaceFields
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.own import named_splits, own_images
from train.data.own.division import Division
from train.data.own.found_images import FoundImages, most_bytes
from train.foundation import packages
from train.foundation.errors import UserError


def _spec(fields: HuggingfaceFields) -> DatasetSpec:
    path, name = fields.path, fields.huggingface_name
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
            config=fields.huggingface_config,
            cache=None if data_dir is None else str(Path(data_dir).expanduser().absolute()),
            image_column=fields.image_column,
            label_column=fields.label_column,
            splits=named_splits.chosen(fields),
            divided=Division.of(fields),
            most_bytes=most_bytes(fields),
        )

    return own_images.make(fields, find)


HUGGINGFACE = DatasetFamily(_spec, fields=HuggingfaceFields)
