"""The images that --images or --table names, with their classes and splits if they have some."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from train.configuration.datasets import FolderFields, TableFields
from train.data import dataset_spec, image_formats
from train.data.own import own_images
from train.data.own.found_images import FoundImages
from train.data.own.listing import Listing, Role
from train.data.own.own_images import OwnImagesSpec
from train.foundation import names
from train.foundation.side_files import PassedOver
from train.workdir import overlooked


def configuration(name: str, path: Path, **fields: Any) -> FolderFields | TableFields:
    """The fields of `config.dataset` for images that a pretrained network gets.

    Args:
        name: "folder" or "table".
        path: where the images are.
        fields: the fields that do not have their default.
    """
    changed = {
        "path": str(path),
        "augmentation": "none",
        # The file of features has all classes. The run that reads it decides about them.
        "unseen_classes": None,
        **fields,
    }
    kind = FolderFields if name == "folder" else TableFields
    return kind(name=name, batch_size=1, **changed)


def in_folder(path: Path, **fields: Any) -> FoundImages:
    """The images of a folder with a folder for each class; or of one without folders, unlabelled.

    Args:
        path: the folder.
        fields: see `configuration`.

    Raises:
        UserError: it has another form, or no images.
    """
    config = configuration("folder", path, **fields)
    root = names.existing(path.absolute())
    unlabelled = _unlabelled(root)
    return _labelled(config) if unlabelled is None else own_images.grouped(unlabelled, config)


def in_table(path: Path, **fields: Any) -> FoundImages:
    """The images that a table lists.

    Args:
        path: the table.
        fields: see `configuration`.

    Raises:
        UserError: it has another form, or lists no images.
    """
    return _labelled(configuration("table", path, **fields))


def _labelled(config: FolderFields | TableFields) -> FoundImages:
    spec = dataset_spec(config)
    assert isinstance(spec, OwnImagesSpec)
    images = spec.find(None)
    if line := overlooked.in_names(images.listing, config, images.where):
        logging.warning("%s", line)
    return images


def _unlabelled(root: Path) -> FoundImages | None:
    """The files in the folder itself, without side files; None if there are folders or no files."""
    if not root.is_dir():
        return None
    passed = PassedOver()
    shown = sorted(name for name in os.listdir(root) if not passed.is_passed(name))  # noqa: PTH208
    paths = tuple(name for name in shown if not image_formats.is_side_file(name))
    if not paths or any((root / name).is_dir() for name in shown):
        return None
    where = f"--images {root}"
    passed.tell(where)
    number = len(paths)
    listing = Listing(
        paths=paths,
        labels=np.zeros(number, np.int32),
        roles=np.full(number, Role.TRAIN, np.int8),
        class_names=(),
    )
    return FoundImages.in_files(listing, root, where)
