"""A data set of tensorflow-datasets by its name: `--config=configs/tfds.py`."""

from collections.abc import Mapping
from typing import Any

from train.data import options
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.own import named_splits, own_images
from train.data.own.division import Division
from train.data.own.found_images import FoundImages
from train.foundation import fields


def _spec(config: Mapping[str, Any]) -> DatasetSpec:
    def find(data_dir: str | None) -> FoundImages:
        # Imported here because tensorflow-datasets takes long to import.
        from train.data.own import tfds_images  # noqa: PLC0415

        return tfds_images.find(
            config["tfds_name"],
            data_dir,
            splits=named_splits.chosen(config),
            divided=Division.of(config),
        )

    return own_images.make(config, find)


TFDS = DatasetFamily(
    _spec,
    options={
        **options.STREAMED,
        # The name, and where the data set has several of them its config and its version, as in
        # "name/config:1.0.0".
        "tfds_name": fields.text(),
        **named_splits.OPTIONS,
        **own_images.OPTIONS,
    },
)
