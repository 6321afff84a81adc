"""The user's own images as data sets: the source of each kind, and the fields that it has."""

import dataclasses
import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path

from train.configuration.datasets import (
    FolderFields,
    HuggingfaceFields,
    OwnImageFields,
    TableFields,
    TfdsFields,
)
from train.data.dataset import DatasetFamily, DatasetSpec
from train.data.own import folders, own_images, tables
from train.data.own.determinations import Reading
from train.data.own.found_images import FoundImages
from train.foundation import names, packages
from train.foundation.errors import UserError


def _family(fields: type[OwnImageFields], source: Callable[..., FoundImages]) -> DatasetFamily:
    """A data set whose images a function of `config.dataset` and the data directory finds."""

    def spec(chosen: OwnImageFields) -> DatasetSpec:
        return own_images.make(chosen, functools.partial(source, chosen))

    return DatasetFamily(spec, fields=fields)


def _in_folder(fields: FolderFields, _data_dir: str | None) -> FoundImages:
    return folders.find(_path(fields), nested=fields.nested)


def _in_table(fields: TableFields, _data_dir: str | None) -> FoundImages:
    reading = Reading.of(fields, fields.group)
    return tables.find(_path(fields), reading=reading)


def _path(fields: FolderFields | TableFields) -> Path:
    return names.existing(Path(fields.path).expanduser().absolute())


def _in_huggingface(fields: HuggingfaceFields, data_dir: str | None) -> FoundImages:
    package = importlib.util.find_spec("datasets")
    # Without an origin, it is any folder of this name.
    if package is None or package.origin is None:
        field = "config.dataset.name: huggingface"
        raise UserError(packages.missing(field, "datasets", "huggingface"))
    # Imported here because datasets takes long to import.
    from train.data.own import huggingface_images  # noqa: PLC0415

    return huggingface_images.find(fields, data_dir)


def _huggingface(fields: HuggingfaceFields) -> DatasetSpec:
    if (fields.path is None) == (fields.huggingface_name is None):
        raise UserError(
            "either config.dataset.path, a folder of Parquet files, or "
            "config.dataset.huggingface_name, as in user/name, must be given; got "
            f"{'neither' if fields.path is None else 'both'}"
        )
    return own_images.make(fields, functools.partial(_in_huggingface, fields))


def _in_tfds(fields: TfdsFields, data_dir: str | None) -> FoundImages:
    # Imported here because tensorflow-datasets takes long to import.
    from train.data.own import tfds_images  # noqa: PLC0415

    return tfds_images.find(fields, data_dir)


def _class_list(fields: FolderFields) -> DatasetSpec:
    def find(_data_dir: str | None) -> FoundImages:
        raise UserError(f"{fields.path} has only the names of classes, and no images")

    name = f"unknown (classes of {Path(fields.path).name})"
    return dataclasses.replace(own_images.make(fields, find), name=name)


FOLDER = _family(FolderFields, _in_folder)
TABLE = _family(TableFields, _in_table)
HUGGINGFACE = DatasetFamily(_huggingface, fields=HuggingfaceFields)
TFDS = _family(TfdsFields, _in_tfds)
# Images of known classes without a data set, for networks that were trained elsewhere. `path` is
# the file with the names of the classes; images are prepared like the user's own images.
CLASS_LIST = DatasetFamily(_class_list, fields=FolderFields)
