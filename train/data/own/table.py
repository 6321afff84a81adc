"""A table of image files and labels: `--config=configs/table.py`."""

from train.configuration.datasets import TableFields
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.own import found_images, own_images, tables
from train.data.own.found_images import FoundImages


def _spec(fields: TableFields) -> DatasetSpec:
    def find(_data_dir: str | None) -> FoundImages:
        return found_images.find(fields, tables.find)

    return own_images.make(fields, find)


TABLE = DatasetFamily(_spec, fields=TableFields)
