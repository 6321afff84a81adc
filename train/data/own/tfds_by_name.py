"""A data set of tensorflow-datasets by its name: `--config=configs/tfds.py`."""

from train.configuration.datasets import TfdsFields
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.own import named_splits, own_images
from train.data.own.division import Division
from train.data.own.found_images import FoundImages


def _spec(fields: TfdsFields) -> DatasetSpec:
    def find(data_dir: str | None) -> FoundImages:
        # Imported here because tensorflow-datasets takes long to import.
        from train.data.own import tfds_images  # noqa: PLC0415

        return tfds_images.find(
            fields.tfds_name,
            data_dir,
            splits=named_splits.chosen(fields),
            divided=Division.of(fields),
        )

    return own_images.make(fields, find)


TFDS = DatasetFamily(_spec, fields=TfdsFields)
