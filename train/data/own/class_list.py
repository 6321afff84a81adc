"""Images of which only the classes are known, for networks that were trained elsewhere."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.own import folder, own_images
from train.data.own.found_images import FoundImages
from train.foundation.errors import UserError


def _spec(config: Mapping[str, Any]) -> DatasetSpec:
    path = config["path"]

    def find(_data_dir: str | None) -> FoundImages:
        raise UserError(f"{path} has the names of classes alone, and no images")

    name = f"unknown (classes of {Path(path).name})"
    return dataclasses.replace(own_images.make(config, find), name=name)


# Images get the form that own ones have. `path` is the file with the names of the classes.
CLASS_LIST = DatasetFamily(_spec, options=folder.FOLDER.options)
