"""Images of which only the classes are known, for networks that were trained elsewhere."""

import dataclasses
from pathlib import Path

from train.configuration.datasets import FolderFields
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.own import own_images
from train.data.own.found_images import FoundImages
from train.foundation.errors import UserError


def _spec(fields: FolderFields) -> DatasetSpec:
    def find(_data_dir: str | None) -> FoundImages:
        raise UserError(f"{fields.path} has the names of classes alone, and no images")

    name = f"unknown (classes of {Path(fields.path).name})"
    return dataclasses.replace(own_images.make(fields, find), name=name)


# Images get the form that own ones have. `path` is the file with the names of the classes.
CLASS_LIST = DatasetFamily(_spec, fields=FolderFields)
