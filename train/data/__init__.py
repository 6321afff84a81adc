"""Data sets by name.

An entry of `DATASETS` is an import path, so that only the data set of a run is imported.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from train.configuration import DatasetFields
from train.data.dataset import Dataset, DatasetFamily, DatasetSpec, TrueDistribution
from train.data.examples import Examples, Split
from train.data.prepared_spec import PreparedSpec
from train.foundation import import_paths

DATASETS = {
    "cifar100": "train.data.cifar100:CIFAR100",
    "digits": "train.data.digits:DIGITS",
    "features": "train.data.own_features:FEATURES",
    "imagenet": "train.data.photographs:IMAGENET",
    "images": "train.data.own_images:IMAGES",
    "imagenet_lt": "train.data.photographs:IMAGENET_LT",
    "plantnet300k": "train.data.plantnet300k:PLANTNET300K",
    "plantnet300k_v2": "train.data.plantnet300k:PLANTNET300K_V2",
    "synthetic_latents": "train.data.synthetic:SYNTHETIC_LATENTS",
    "synthetic_species": "train.data.synthetic:SYNTHETIC_SPECIES",
}


def find(name: str) -> DatasetFamily:
    """The data set of `config.dataset.name`: one of `DATASETS`, or a `DatasetFamily` by its path.

    Raises:
        UserError: there is none.
    """
    return import_paths.find("config.dataset.name", name, DATASETS, DatasetFamily)


def read(values: Mapping[str, Any]) -> DatasetSpec:
    """The data set of `config.dataset` in a recipe or a file; its fields are not checked.

    Raises:
        KeyError: the name of the data set is missing.
        msgspec.ValidationError: a field is missing, or has another type.
    """
    return dataset_spec(msgspec.convert(dict(values), find(values["name"]).fields))


def dataset_spec(fields: DatasetFields) -> DatasetSpec:
    """The data set of `config.dataset`."""
    return find(fields.name).spec(fields)


__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetFamily",
    "DatasetSpec",
    "Examples",
    "PreparedSpec",
    "Split",
    "TrueDistribution",
    "dataset_spec",
    "find",
    "read",
]
