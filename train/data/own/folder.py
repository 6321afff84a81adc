"""A folder with a folder of images for each class: `--config=configs/folder.py`."""

import functools

from train.configuration.datasets import FolderFields
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.own import folders, found_images, own_images
from train.data.own.found_images import FoundImages


def _spec(fields: FolderFields) -> DatasetSpec:
    def find(_data_dir: str | None) -> FoundImages:
        in_files = functools.partial(folders.find, nested=fields.nested)
        return found_images.find(fields, in_files)

    return own_images.make(fields, find)


FOLDER = DatasetFamily(_spec, fields=FolderFields)
