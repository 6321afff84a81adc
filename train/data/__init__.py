"""Data sets by name.

An entry of `DATASETS` is an import path, so that only the data set of a run is imported.
"""

from collections.abc import Mapping
from typing import Any

from train.configuration import DatasetFields
from train.configuration.declaring import build
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

# The values of `config.dataset.name`: a name above, or the import path of a `DatasetFamily`.
DATASET_NAME = import_paths.one_of_or_path(DATASETS, DatasetFamily)


def find(name: str) -> DatasetFamily:
    """The data set of a name that `DATASET_NAME` allows."""
    family: DatasetFamily = import_paths.load(DATASETS.get(name, name))
    return family


def read(values: Mapping[str, Any]) -> DatasetSpec:
    """The data set of `config.dataset` in a recipe or a file; its fields are not checked.

    Raises:
        KeyError: the name of the data set is missing.
        TypeError: a field is missing.
    """
    return dataset_spec(build(find(str(values["name"])).fields, values))


def dataset_spec(fields: DatasetFields) -> DatasetSpec:
    """The data set of `config.dataset`."""
    return find(fields.name).spec(fields)


__all__ = [
    "DATASETS",
    "DATASET_NAME",
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
